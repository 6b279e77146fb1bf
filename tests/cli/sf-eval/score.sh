# Every kind of outcome of two answers to four questions; verdicts are kept.
cd "$SF_SOURCE/man/examples" && sf-eval score aime/answers.jsonl --questions aime/questions.jsonl -o "$TMPDIR/scores.jsonl" --step 10 2>/dev/null
tail -n +2 "$TMPDIR/scores.jsonl"

# Too few correct answers is the answer no.
cd "$SF_SOURCE/man/examples" && sf-eval score -q aime/answers.jsonl --questions aime/questions.jsonl --fail-under 0.9 >/dev/null

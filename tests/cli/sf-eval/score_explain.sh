# One answer with the place where the verdict comes from.
cd "$SF_SOURCE/man/examples" && sf-eval score -q aime/answers.jsonl --questions aime/questions.jsonl --explain aime-2/1

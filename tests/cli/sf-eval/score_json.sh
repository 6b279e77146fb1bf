# The same facts as JSON.
cd "$SF_SOURCE/man/examples" && sf-eval score aime/answers.jsonl --questions aime/questions.jsonl --format json 2>/dev/null

# A name that is no rule gets the list.
cd "$SF_SOURCE/man/examples" && sf-eval score -q aime/answers.jsonl --questions aime/questions.jsonl --rule aime

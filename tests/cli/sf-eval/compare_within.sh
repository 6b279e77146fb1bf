# What a directory is compared with may lie in it, and be named by file, step or label.
printf '%s\n' '{"id":"a","problem":"p","answer":"5"}' '{"id":"b","problem":"q","answer":"5"}' >q.jsonl
printf '%s\n' '{"id":"a","completion":"\\boxed{5}"}' '{"id":"b","completion":"\\boxed{6}"}' >a.jsonl
mkdir evals
sf-eval score -q a.jsonl --questions q.jsonl --step 0 -o evals/0.jsonl >/dev/null
sf-eval score -q a.jsonl --questions q.jsonl --step 10 -o evals/10.jsonl >/dev/null
sf-eval compare evals --against evals/0.jsonl
sf-eval compare evals --against 10 | tail -n 2
cp evals/0.jsonl other.jsonl
sf-eval compare evals --against other.jsonl >table
head -n 2 table
sf-eval compare evals --against 20 || echo "$?"

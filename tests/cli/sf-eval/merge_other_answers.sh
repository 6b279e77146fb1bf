# Shards of two files of answers that say nothing of themselves are no set.
printf '%s\n' '{"id":"a","problem":"p","answer":"5"}' '{"id":"b","problem":"q","answer":"5"}' >q.jsonl
printf '%s\n' '{"id":"a","completion":"\\boxed{5}"}' '{"id":"b","completion":"\\boxed{6}"}' >one.jsonl
printf '%s\n' '{"id":"a","completion":"\\boxed{7}"}' '{"id":"b","completion":"\\boxed{5}"}' >two.jsonl
mkdir parts
sf-eval score -q one.jsonl --questions q.jsonl --shard 0/2 -o parts/0.jsonl >/dev/null
sf-eval score -q two.jsonl --questions q.jsonl --shard 1/2 -o parts/1.jsonl >/dev/null
sf-eval merge parts -o whole.jsonl || echo "$?"

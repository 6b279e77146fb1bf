# A set of fewer questions than shards: the empty ones are published and merged.
printf '%s\n' '{"id":"a","problem":"p","answer":"5"}' '{"id":"b","problem":"q","answer":"5"}' >q.jsonl
printf '%s\n' '{"id":"a","completion":"\\boxed{5}"}' '{"id":"b","completion":"\\boxed{6}"}' >a.jsonl
mkdir parts
for i in 0 1 2 3; do sf-eval score -q a.jsonl --questions q.jsonl --shard $i/4 -o parts/$i.jsonl --fail-under 0 >/dev/null; done
wc -l parts/0.jsonl
sf-eval merge parts -o whole.jsonl
sf-eval report whole.jsonl
sf-eval report parts/0.jsonl || echo "$?"

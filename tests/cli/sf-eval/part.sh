# Verdicts of a part say so: in the report, its record, its page and beside --fail-under.
printf '%s\n' '{"id":"a","problem":"p","answer":"5"}' '{"id":"b","problem":"q","answer":"5"}' >q.jsonl
printf '%s\n' '{"id":"a","completion":"\\boxed{5}"}' >a.jsonl
sf-eval score -q a.jsonl --questions q.jsonl --partial -o part.jsonl --fail-under 0.5 >/dev/null
sf-eval report part.jsonl -o page.html --fail-under 0.5 | tail -n 1
grep -o 'version 2, 1 of 2 questions' page.html
sf-eval report part.jsonl --format json | grep -o '"part":"[^"]*"'
sf-eval score -q a.jsonl --questions q.jsonl --shard 0/2 -o shard.jsonl >/dev/null
sf-eval report shard.jsonl | tail -n 1

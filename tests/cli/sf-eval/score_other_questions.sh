# Answers that name the questions they were made for are scored with these alone; others are told by their texts.
echo '{"id":1,"problem":"Find x.","answer":5}' >q.jsonl
echo '{"id":1,"problem":"Find y.","answer":5}' >other.jsonl
printf '%s\n' '{"facts":{"questions":"0123456789abcdef0123"}}' '{"id":1,"completion":"\\boxed{5}"}' >a.jsonl
sf-eval score -q a.jsonl --questions q.jsonl; echo "status $?"
echo '{"facts":[1]}' >a.jsonl
sf-eval score -q a.jsonl --questions q.jsonl; echo "status $?"
printf '%s\n' '{"id":1,"sample":0,"problem":"Find x.","completion":"\\boxed{5}"}' \
  '{"id":1,"sample":1,"prompt":"user: find $x$\n","completion":"\\boxed{5}"}' >a.jsonl
sf-eval score -q a.jsonl --questions q.jsonl -o x.jsonl | grep pass@1; echo "status $?"
sf-eval score -q a.jsonl --questions other.jsonl -o y.jsonl | grep pass@1; echo "status $?"
sf-eval compare -q x.jsonl --against y.jsonl 2>&1 | sed 's/"[0-9a-f]*"/DIGEST/g'

# A half-written last line is named; --repair leaves it out.
printf '{"id":1,"problem":"p","answer":"5"}\n' >q.jsonl
printf '{"id":1,"completion":"\\\\boxed{5}"}\n{"id":1,"compl' >a.jsonl
sf-eval score -q a.jsonl --questions q.jsonl
echo "status $?"
sf-eval score -q a.jsonl --questions q.jsonl --repair

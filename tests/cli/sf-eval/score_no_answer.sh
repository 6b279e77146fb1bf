# A question without an answer is refused, and left out if asked.
printf '{"id":1,"problem":"p","answer":"5"}\n{"id":2,"problem":"r","answer":"5"}\n' >q.jsonl
printf '{"id":1,"completion":"\\\\boxed{5}"}\n' >a.jsonl
sf-eval score -q a.jsonl --questions q.jsonl
echo "status $?"
sf-eval score -q a.jsonl --questions q.jsonl --partial

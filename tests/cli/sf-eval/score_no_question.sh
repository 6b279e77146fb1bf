# An answer without a question.
printf '{"id":1,"problem":"p","answer":"5"}\n' >q.jsonl
printf '{"id":1,"completion":"\\\\boxed{5}"}\n{"id":2,"completion":"\\\\boxed{5}"}\n' >a.jsonl
sf-eval score -q a.jsonl --questions q.jsonl

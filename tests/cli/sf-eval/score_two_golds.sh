# Two golds for one id.
printf '{"id":1,"problem":"p","answer":"5"}\n{"id":1,"problem":"p","answer":"6"}\n' >q.jsonl
printf '{"id":1,"completion":"\\\\boxed{5}"}\n' >a.jsonl
sf-eval score -q a.jsonl --questions q.jsonl

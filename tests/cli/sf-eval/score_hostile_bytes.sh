# NUL bytes, bytes that are no UTF-8, half a surrogate: scored, and said.
printf '{"id":1,"problem":"p","answer":"5"}\n' >q.jsonl
printf '{"id":1,"completion":"\\u0000\\\\boxed{5}"}\n{"id":1,"completion":"\377\\\\boxed{5}"}\n{"id":1,"completion":"\\ud83c\\\\boxed{5}"}\n' >a.jsonl
sf-eval score -q a.jsonl --questions q.jsonl

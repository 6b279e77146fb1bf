# aime-v1 refuses a gold that no answer can be.
printf '{"id":1,"problem":"p","answer":"1000"}\n' >q.jsonl
printf '{"id":1,"completion":"\\\\boxed{5}"}\n' >a.jsonl
sf-eval score -q a.jsonl --questions q.jsonl

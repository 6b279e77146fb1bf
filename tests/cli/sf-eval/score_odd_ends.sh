# An end of an answer that is not known is said with its count; a NUL does not cut a message short.
printf '%s\n' '{"id":"a","problem":"p","answer":"5"}' '{"id":"b","problem":"q","answer":"5"}' >q.jsonl
printf '%s\n' '{"id":"a","completion":"\\boxed{5}","finish":"weird"}' '{"id":"b","completion":"\\boxed{5}","finish":"max_tokens"}' >a.jsonl
sf-eval score a.jsonl --questions q.jsonl
printf '%s\n' '{"id":"c\u0000d","completion":"5"}' >n.jsonl
sf-eval score n.jsonl --questions q.jsonl || echo "$?"

# A gold that rule math cannot read is said: nothing but its own text can be correct.
printf '%s\n' '{"id":"cases","problem":"p","answer":"\\begin{cases}1\\end{cases}"}' '{"id":"plain","problem":"q","answer":"5"}' >q.jsonl
printf '%s\n' '{"id":"cases","completion":"\\boxed{1}"}' '{"id":"plain","completion":"\\boxed{5.0}"}' >a.jsonl
sf-eval score a.jsonl --questions q.jsonl --rule math

# Columns without meaning, copies and known defects are said.
printf '{"id":1,"problem":"Find x.","answer":"336^\\\\circ","hue":1}\n{"id":2,"problem":"find x","answer":"336"}\n' >q.jsonl
printf '{"id":1,"completion":"\\\\boxed{336}"}\n{"id":2,"completion":"\\\\boxed{336}"}\n' >a.jsonl
sf-eval score -q a.jsonl --questions q.jsonl

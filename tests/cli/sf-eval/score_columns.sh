# Columns that contradict one another are refused with both names, columns of an odd kind with what was wanted.
q() { printf '%s\n' "$1" >q.jsonl; sf-eval score -q a.jsonl --questions q.jsonl; echo "status $?"; }
a() { printf '%s\n' "$1" >a.jsonl; sf-eval score -q a.jsonl; echo "status $?"; }
echo '{"id":1,"completion":"\\boxed{5}"}' >a.jsonl
q '{"id":1,"problem":"p","answer":5,"gold":6}'
q '{"id":1,"problem":"Find x.","question":"Find y.","answer":5}'
q '{"id":1,"ID":2,"problem":"p","answer":5}'
q '{"id":1,"problem":"p","answer":{"value":5}}'
q '{"id":1,"problem":7,"answer":5}'
q '{"id":1,"problem":"p","answer":1e400}'
q '{"id":1,"uid":"u","problem":"p","answer":5}' 2>&1 | head -n 1
a '{"id":1,"gold":5,"completion":"5","response":"6"}'
a '{"id":1,"gold":5,"completion":5}'
a '{"id":1,"gold":5,"completion":["5","6"]}'
a '{"id":1,"gold":5,"messages":[{"role":"user","content":"q"}]}'
a '{"id":1,"gold":5,"completion":"5","step":"ten"}'
a '{"doc_id":0,"doc":{"question":"q","answer":"5"},"target":"6","resps":[["5"]],"filter":"none"}'
a '{"doc_id":0,"doc":{"question":"q","answer":"5"},"target":"5","resps":[[5]],"filter":"none"}'

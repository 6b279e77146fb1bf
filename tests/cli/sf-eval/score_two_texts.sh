# An id belongs to one question, as a number or as a text; what is no text is no id.
try() { printf '%s\n' "$1" "$2" >q.jsonl; sf-eval score -q a.jsonl --questions q.jsonl; echo "status $?"; }
echo '{"id":1,"completion":"\\boxed{5}"}' >a.jsonl
try '{"id":1,"problem":"Find x + y.","answer":5}' '{"id":1,"problem":"Find x - y.","answer":5}'
try '{"id":1,"problem":"Find x.","answer":5}' '{"id":"1","problem":"Find y.","answer":5}'
try '{"id":1,"problem":"Find x.","answer":5}' '{"id":"1","problem":"find $x$","answer":"05"}' 2>&1 | grep -v '^rule'
try $'{"id":"a\xff","problem":"Find x.","answer":5}' $'{"id":"a\xfe","problem":"Find y.","answer":5}'
printf '%s\n' '{"id":1,"problem":"Find x.","gold":5,"completion":"5"}' '{"id":"1","problem":"Find y.","gold":5,"completion":"5"}' >a.jsonl
sf-eval score -q a.jsonl; echo "status $?"

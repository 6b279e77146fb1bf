# Verdicts replace verdicts and nothing else.
echo '{"id":1,"gold":5,"completion":"\\boxed{5}"}' >a.jsonl
cp a.jsonl keep.jsonl
sf-eval score -q a.jsonl -o keep.jsonl; echo "status $?"
cmp a.jsonl keep.jsonl
sf-eval score -q a.jsonl -o v.jsonl >/dev/null
sf-eval score -q a.jsonl --step 3 -o v.jsonl >/dev/null && grep -c '"step":3' v.jsonl

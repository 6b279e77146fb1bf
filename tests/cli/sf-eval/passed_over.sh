# What is left of verdicts that were cut is named; answers of two steps are not one checkpoint's.
a() { printf '{"id":1,"gold":5,"sample":%d,"step":%d,"completion":"5"}\n' 0 10 1 "$1" >a.jsonl; }
a 20
sf-eval score -q a.jsonl; echo "status $?"
sf-eval score -q a.jsonl --step 20 -o v.jsonl | grep -c pass@1
a 10
mkdir v && sf-eval score -q a.jsonl -o v/10.jsonl >/dev/null && : >v/20.jsonl
sf-eval report -q v | wc -l
sf-eval compare -q v --against v/10.jsonl | wc -l
sf-eval compare -q v/10.jsonl --against v/10.jsonl -o nowhere/x; echo "status $?"

# Options that have no part in what is reported are refused.
printf 'step,reward\n0,0\n' >c.csv
echo '{"id":1,"gold":5,"completion":"\\boxed{5}"}' >a.jsonl
sf-eval score -q a.jsonl -o v.jsonl >/dev/null
mkdir run
try() { sf-eval report -q "$@"; echo "status $?"; }
try v.jsonl --of 30
try v.jsonl --step 3
try c.csv
try c.csv --of 2 --repair
try run --of 2
try run --trace --before b.json
try run --against x
sf-eval score -q a.jsonl --explain 2; echo "status $?"
sf-eval score -q a.jsonl --explain nope; echo "status $?"
for option in "-o w.jsonl" "--fail-under 0.5" --verl "--label x" "--step 1" --again; do
  sf-eval score -q a.jsonl --explain 1 $option; echo "status $?"
done
for option in "--label x" "--step 1" --again; do sf-eval score -q a.jsonl $option; echo "status $?"; done
sf-eval score -q a.jsonl --label x --format json | grep -o '"label":"x"'
ls

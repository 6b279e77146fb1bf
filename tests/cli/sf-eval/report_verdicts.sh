# Checkpoints of one set, a re-evaluation, another rule over the same answers; the page and its charts.
mkdir v
for step in 0 10 20; do
  for i in 1 2 3 4 5 6; do echo "{\"id\":$i,\"gold\":$i,\"completion\":\"\\\\boxed{0$((i + (i > 2 + step / 10)))}\",\"tokens\":$i}"; done >a$step.jsonl
  sf-eval score -q a$step.jsonl --step $step -o v/$step.jsonl >/dev/null
done
sf-eval score -q a10.jsonl --step 10 --again -o v/again.jsonl >/dev/null
sf-eval score -q a20.jsonl --rule lm-eval-aime -o v/lm.jsonl >/dev/null
sf-eval report -q v -o page.html --fail-under 0.9
echo "status $?"
ls
cp v/10.jsonl v/copy.jsonl
sf-eval report -q v

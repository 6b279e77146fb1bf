# Two checkpoints on the same questions.
for step in 0 10; do
  for i in 1 2 3 4 5 6; do echo "{\"id\":$i,\"gold\":$i,\"completion\":\"\\\\boxed{$((i + (i > 2 + step / 5)))}\",\"tokens\":$i}"; done >a$step.jsonl
  sf-eval score -q a$step.jsonl --step $step -o $step.jsonl >/dev/null
done
sf-eval compare -q 10.jsonl --against 0.jsonl
sf-eval score -q a10.jsonl --rule exact -o other.jsonl >/dev/null
sf-eval compare -q other.jsonl --against 0.jsonl

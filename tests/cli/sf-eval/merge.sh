# Shards scored apart are the set scored at once; a gap is refused.
cd "$SF_SOURCE/man/examples" || exit
mkdir "$TMPDIR/shards"
for i in 0 1 2; do
  sf-eval score -q aime/answers.jsonl --questions aime/questions.jsonl --shard $i/3 -o "$TMPDIR/shards/$i.jsonl" >/dev/null
done
sf-eval score -q aime/answers.jsonl --questions aime/questions.jsonl -o "$TMPDIR/once.jsonl" >/dev/null
cd "$TMPDIR" && sf-eval merge -q shards -o whole.jsonl && cmp <(tail -n +2 whole.jsonl) <(tail -n +2 once.jsonl) && echo equal
rm shards/1.jsonl && sf-eval merge -q shards -o again.jsonl

# Verdicts cut at a line end or within a line are refused by the file's name; a question of two shards too.
cd "$SF_SOURCE/man/examples" || exit
mkdir "$TMPDIR/shards"
for i in 0 1; do
  sf-eval score -q aime/answers.jsonl --questions aime/questions.jsonl --shard $i/2 -o "$TMPDIR/shards/part$i" >/dev/null
done
cd "$TMPDIR" || exit
cp shards/part1 whole
head -n -1 whole >shards/part1
sf-eval merge -q shards -o out.jsonl; echo $?
sf-eval report -q shards/part1; echo $?
head -c -9 whole >shards/part1
sf-eval merge -q shards -o out.jsonl; echo $?
sf-eval compare -q shards/part1 --against shards/part1; echo $?
sf-eval report -q shards/part1 --repair | tail -n 2
sed 1s,0/2,1/2, shards/part0 >shards/part1
sf-eval merge -q shards -o out.jsonl; echo $?
rm shards/part0
sf-eval merge -q shards -o out.jsonl; echo $?
ls

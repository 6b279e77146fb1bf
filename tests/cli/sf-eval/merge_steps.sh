# Shards that differ in anything but their part are not merged, whichever of them says more.
cd "$SF_SOURCE/man/examples" || exit
mkdir "$TMPDIR/shards"
part() { sf-eval score -q aime/answers.jsonl --questions aime/questions.jsonl --shard $1/2 "${@:2}" -o "$TMPDIR/shards/$1" >/dev/null; }
part 0; part 1 --step 3
cd "$TMPDIR" || exit
sf-eval merge -q shards -o out.jsonl; echo "status $?"
sed -i '1s|"1/2"|"one"|' shards/1
sf-eval merge -q shards -o out.jsonl; echo "status $?"
sf-eval merge -q nowhere -o out.jsonl; echo "status $?"

#!/usr/bin/env bash
# Frozen parameters of which a host keeps one copy: the bits of whole ones, no cast, nothing left behind.
. "$(dirname "$0")/lib.sh"
tiny_setup tied=false
sf-init model hf --dtype bf16 -o target16 >/dev/null 2>&1
sf-init draft dflash --target target16 --set draft.hidden_layers=2 --set draft.block_size=4 -o dflash0 >/dev/null 2>&1
sf-capture features -c run.toml --target target16 --draft dflash0 --data chats.jsonl -o features-dflash >/dev/null 2>err || { cat err; die features; }
train=(sf-train dflash -c run.toml --draft dflash0 --from features-dflash --set training.num_anchors=3 --set training.max_steps=2)

expect 0 "${train[@]}" -o whole
mkdir copies
for ranks in 1 4; do
  expect 0 "${train[@]}" --ranks $ranks -o mapped$ranks --host-resident target_embedding --host-resident target_head
  says "host-resident target_embedding.weight" "BF16, mapped where it lies, $ranks rank" "applied shard.host_resident=target_embedding,target_head to 2 parameters"
  expect 0 "${train[@]}" --ranks $ranks -o copied$ranks --host-resident target_embedding --set shard.host_dir=copies
  says "BF16, one copy, $ranks rank"
  [ -z "$(ls copies)" ] || die "a copy was left behind"
  for run in mapped$ranks copied$ranks; do [ "$(digest $run/latest)" = "$(digest whole/latest)" ] || die "$run has other bits"; done
done
# The plan counts the table once for the host, in the type of its file.
"${train[@]}" --ranks 4 -o never --host-resident target_embedding --set shard.host_dir=copies --plan --format json >plan.json 2>err || { cat err; die plan; }
python3 -c "
import json
plan = json.load(open('plan.json'))
table = next(t for t in plan['tables'] if t['name'] == 'target_embedding.weight')
assert table['now'] == 'host', table
assert table['residencies']['host']['host'] == table['rows'] * table['width'] * 2, table
run = json.loads(next(l for l in open('copied4/metrics.jsonl') if '\"plan\"' in l))
assert run['plan'] == plan['digest'], run
" || die "the plan of a host-resident table"

# Words that mean nothing, what trains, network storage (by its name only), a directory that is not there.
expect 78 "${train[@]}" -o x --host-resident nowhere; says "matches no parameter"
expect 78 "${train[@]}" -o x --host-resident norm; says "cannot train"
expect 73 "${train[@]}" --ranks 2 -o x --host-resident target_embedding --set shard.host_dir=absent; says "absent"
expect 78 sf-train sft --target target --data chats.jsonl -o x --set shard.host_resident=embed_tokens; says "cannot train"

# A killed run leaves no file, and its survivors end.
"${train[@]}" --ranks 2 -o killed --host-resident target_embedding --set shard.host_dir=copies --set training.max_steps=0 \
  --set training.epochs=100000 >/dev/null 2>err & first=$!
for _ in $(seq 400); do [ -s killed/metrics.jsonl ] && break; sleep 0.05; done
[ -z "$(ls copies)" ] || die "the copy has a name while the run lives"
pkill -KILL -P $first || die "no rank was there to kill"
got=0; wait $first || got=$?
[ $got = 69 ] || { cat err; die "the survivors ended with $got"; }
[ -z "$(ls copies)" ] || die "a killed run left its copy"

# The target of a capture looks up where the checkpoint lies; a changed table is refused by its digest.
capture=(sf-capture features -c run.toml --target target16 --draft dflash0 --data chats.jsonl)
expect 0 "${capture[@]}" -o mapped-features --host-resident embed_tokens; says "mapped where it lies"
expect 0 "${capture[@]}" -o copied-features --host-resident embed_tokens --set shard.host_dir=copies; says "one copy"
for dir in mapped-features copied-features; do
  for file in features-dflash/rows-*; do cmp "$file" "$dir/${file##*/}" || die "$dir holds other states"; done
done
expect 78 "${capture[@]}" -o x --host-resident q_proj; says "only model.embed_tokens.weight can be"
cp -r target16 flipped
python3 - <<'P'
import json, struct
data = bytearray(open("flipped/model.safetensors", "rb").read())
size = struct.unpack("<Q", data[:8])[0]
begin, end = json.loads(data[8:8 + size])["model.embed_tokens.weight"]["data_offsets"]
data[8 + size + begin] ^= 1
open("flipped/model.safetensors", "wb").write(data)
P
expect 65 "${train[@]}" --target flipped -o x --host-resident target_embedding; says "sees a table of digest" "wanted"
echo "one copy for 4 ranks, the bits of whole tables, nothing left behind"

#!/usr/bin/env bash
# A DFlash draft from sf-init to a checkpoint: equal bits for 1 and 2 ranks and for every residency of the target's
# tables, from a directory and through the pipe; a stopped run goes on to the same bits.
. "$(dirname "$0")/lib.sh"
tiny_setup tied=false
sf-init draft dflash --target target --set draft.hidden_layers=2 --set draft.block_size=4 -o dflash0 >/dev/null 2>err || { cat err; die init; }
capture() { sf-capture features -c run.toml --target target --draft dflash0 --data chats.jsonl "$@"; }
train() { sf-train dflash -c run.toml --draft dflash0 --set training.num_anchors=3 --set training.max_steps=3 "$@"; }
capture -o feats >/dev/null 2>err || { cat err; die features; }

train --from feats -o alone >/dev/null 2>err || { cat err; die "one rank"; }
wanted=$(digest alone/latest)
for tables in replicate shard target_embedding=rows,target_head=stream host; do
  train --from feats --ranks 2 --set shard.frozen_tables=$tables -o "$tables" >/dev/null 2>err || { cat err; die "$tables"; }
  [ "$(digest "$tables/latest")" = "$wanted" ] || die "weights with $tables differ from one rank's"
done
says "applied shard.frozen_tables=host to 2 tables by engine"
python3 - host/latest/manifest.json <<'P'
import json, sys
taken = json.load(open(sys.argv[1]))["target"]["taken"]
assert sorted(taken) == ["target_embedding.weight", "target_head.weight"], taken
P
train --from feats --ranks 2 --set training.shard_frozen_tables=true -o reference >/dev/null 2>err || { cat err; die "shard_frozen_tables"; }
says "applied training.shard_frozen_tables=true to 2 tables by engine"
[ "$(digest reference/latest)" = "$wanted" ] || die "weights with shard_frozen_tables differ from one rank's"

capture 2>capture.err | train --from - --ranks 2 -o streamed >/dev/null 2>err || { cat err capture.err; die "the pipe"; }
[ "$(digest streamed/latest)" = "$wanted" ] || die "weights of the pipe differ from the directory's"

train --from feats --set training.max_steps=1 --set training.total_steps=10 -o parts >/dev/null 2>err || { cat err; die "the first part"; }
train --from feats --set training.total_steps=10 --ranks 2 --resume auto -o parts >/dev/null 2>err || { cat err; die "the second part"; }
[ "$(digest parts/latest)" = "$wanted" ] || die "a stopped run ended in other weights"

sf-capture features --synthetic dflash0 --n 4 --set capture.max_length=24 -o random >/dev/null 2>err || { cat err; die "random features"; }
train --from random -o measured >/dev/null 2>err || { cat err; die "random features do not train"; }

expect 78 train --from feats --set shard.frozen_tables=rows -o never
says "residency rows does not fit table target_head.weight"
expect 78 train --from feats --set shard.frozen_tables=lm_head=stream -o never
says "\"lm_head\" is no frozen table of this model; it has: target_embedding, target_head"
sf-train eagle3 -c run.toml --draft draft0 --from feats -o never >/dev/null 2>err && die "an EAGLE3 run took DFlash's features"
says "algorithm"

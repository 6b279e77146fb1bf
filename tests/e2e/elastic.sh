#!/usr/bin/env bash
# A run continued on 2, 1, 4 and 3 ranks has, at each stop, the bits of one that never stopped: weights, moments, next
# position and losses.
. "$(dirname "$0")/lib.sh"
tiny_setup
features -o feats >/dev/null 2>err || { cat err; die features; }
train=(sf-train eagle3 -c run.toml --draft draft0 --from feats --set training.keep_checkpoints=20)
"${train[@]}" --ranks 3 --set training.checkpoint_every=1 -o whole >/dev/null 2>err || { cat err; die whole; }
position() { sf-shard inspect "$1" --format json | python3 -c 'import json, sys; print(json.load(sys.stdin)["cursor"])'; }
at=0
for stage in "2 3" "1 5" "4 8" "3 10"; do
  read -r ranks stop <<<"$stage"
  "${train[@]}" --ranks "$ranks" --resume auto --set training.max_steps="$stop" -o cut >/dev/null 2>err ||
    { cat err; die "$ranks ranks from step $at to $stop"; }
  at=$stop
  sf-shard diff "whole/step-$at" "cut/step-$at" >said || { cat said; die "step $at after $ranks ranks differs"; }
  grep -q "^no difference in 4[0-9] tensors" said || { cat said; die "step $at: not all of weights and moments"; }
  [ "$(position whole/step-$at)" = "$(position cut/step-$at)" ] || die "the next position differs at step $at"
  echo "step $at on $ranks ranks: $(cat said)"
done
cmp <(losses whole) <(losses cut) || die "losses of the continued run differ"
# Negative control: forgotten moments must show.
SF_FAULT=train.forget_moments "${train[@]}" --resume whole/step-5 --set training.max_steps=6 -o broken >/dev/null 2>err
if sf-shard diff whole/step-6 broken/step-6 >said; then die "the fault switch train.forget_moments turned nothing red"; fi

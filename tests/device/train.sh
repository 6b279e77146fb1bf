#!/usr/bin/env bash
# Training on a device beside the same on the CPU: losses within rounding, keep and recompute to the same bits, one rank
# a GPU to the bits of one rank. SF_BIN: the commands' folder. GPUS: how many there are. DEVICE=cpu tries the script.
. "$(dirname "$0")/../e2e/lib.sh"
device=${DEVICE:-cuda} gpus=${GPUS:-1}
tiny_setup
features -o feats >/dev/null 2>err || { cat err; die features; }

# verb VERB: its command
verb() {
  command=(sf-train "$1" -c run.toml --set training.max_steps=5)
  case $1 in
    sft) command+=(--target target --data chats.jsonl) ;;
    eagle3) command+=(--draft draft0 --from feats) ;;
  esac
}

# train OUT COMMAND...: says what the run held on the device
train() {
  "${@:2}" -o "$1" >/dev/null 2>err || { cat err; die "$1"; }
  losses "$1" >"$1.losses"
  grep -o 'memory of rank.*' err | sed "s/^/$1: /" || true
}

# close A B BOUND: losses and norms of two runs, relative; a step of AdamW turns rounding of a gradient near zero into more
close() {
  python3 - "$@" <<'P' || die "$2 is not $1 within $3"
import sys
rows = [[list(map(float, line.split()[1:])) for line in open(name + ".losses")] for name in sys.argv[1:3]]
assert len(rows[0]) == len(rows[1]) == 5, rows
worst = max(abs(a - b) / max(abs(a), 1e-3) for x, y in zip(*rows) for a, b in zip(x, y))
print(f"{sys.argv[2]} beside {sys.argv[1]}: worst relative difference of losses and norms {worst:.2e}, bound {sys.argv[3]}")
sys.exit(worst > float(sys.argv[3]))
P
}

for verb in sft eagle3; do
  verb "$verb"
  for type in fp32 bf16; do
    at=$verb-$type dtype=(--set "engine.compute_dtype=$type")
    train "$at-cpu" "${command[@]}" "${dtype[@]}"
    train "$at-keep" "${command[@]}" "${dtype[@]}" --set engine.device="$device"
    train "$at-recompute" "${command[@]}" "${dtype[@]}" --set engine.device="$device" --set engine.mode=recompute
    bound=2e-3
    [ $type = fp32 ] || bound=0.1
    close "$at-cpu" "$at-keep" $bound
    [ "$(digest "$at-keep/latest")" = "$(digest "$at-recompute/latest")" ] || die "$at: keep and recompute differ"
  done
  for kind in auto nccl; do
    if [ "$gpus" -lt 2 ] || { [ $kind = nccl ] && [ "$device" = cpu ]; }; then
      echo "not run: $verb on several ranks with comm.group = $kind ($gpus GPUs)"
      continue
    fi
    train "$verb-ranks-$kind" "${command[@]}" --set engine.device="$device" --ranks "$gpus" --set comm.group=$kind
    [ "$(digest "$verb-ranks-$kind/latest")" = "$(digest "$verb-fp32-keep/latest")" ] || die "$verb: $gpus ranks differ from one"
  done
done
echo "trained on $device: sft and eagle3"

#!/usr/bin/env bash
# --plan predicts what a run then measures, without LibTorch and without touching anything; a plan that differs between
# ranks is refused; an option that is given is applied on every launch path, and its loss is noticed.
. "$(dirname "$0")/lib.sh"
tiny_setup tied=false
sf-init draft dflash --target target --set draft.hidden_layers=2 --set draft.block_size=4 -o dflash0 >/dev/null 2>&1
sf-capture features -c run.toml --target target --draft dflash0 --data chats.jsonl -o features-dflash >/dev/null 2>&1
features -o features >/dev/null 2>err || { cat err; die features; }
train=(sf-train eagle3 -c run.toml --draft draft0 --set training.max_steps=2)

before=$(find . -type f -newermt 2000-01-01 | sort | xargs sha256sum | sha256sum)
for verb in "${train[*]} --from features -o never --ranks 2" \
  "sf-train dflash -c run.toml --draft dflash0 --from features-dflash -o never --ranks 2" \
  "sf-train sft -c run.toml --target target --data chats.jsonl -o never --ranks 2" \
  "sf-capture features --synthetic qwen3-8b --n 4 -o never" "sf-capture features --target target --draft dflash0 --data chats.jsonl" \
  "sf-init model target -o never" "sf-init draft eagle3 --target target --draft-vocab 64 --data chats.jsonl -o never" "sf-shard inspect target" \
  "sf-shard verify target" "sf-capture inspect features" "sf-capture features --target target --draft draft0 --data chats.jsonl" \
  "sf-eval generate --target target --questions chats.jsonl" "sf-eval accept --target target --draft draft0 --prompts chats.jsonl" \
  "sf-capture regenerate --target target --prompts chats.jsonl -o never.jsonl"; do
  # shellcheck disable=SC2086
  LD_DEBUG=files $verb --plan >plan.out 2>plan.err || { grep ": error" plan.err; die "$verb --plan"; }
  [ -s plan.out ] || die "$verb --plan says nothing"
  ! grep -q libtorch plan.err || die "$verb --plan opens LibTorch"
  rm plan.out plan.err
done
[ "$before" = "$(find . -type f -newermt 2000-01-01 | sort | xargs sha256sum | sha256sum)" ] || die "--plan touched a file"

# hold NAME RANKS COMMAND...: the run's plan is the printed one, and its memory what the plan says, on every rank.
hold() {
  local name=$1 ranks=$2
  shift 2
  "$@" -o never --ranks "$ranks" --plan --format json >plan.json 2>err || { cat err; die "$name: plan"; }
  "$@" -o "$name" --ranks "$ranks" >out 2>err || { cat err; die "$name: run"; }
  says "memory of rank $((ranks - 1)), MiB"
  python3 - "$name" "$ranks" <<'P' || die "$name: the plan of $ranks ranks does not hold"
import json, sys
name, ranks = sys.argv[1], int(sys.argv[2])
plan = json.load(open("plan.json"))
events = [r for r in map(json.loads, open(f"{name}/metrics.jsonl")) if "event" in r]
run, end = events[0], events[-1]
assert run["plan"] == plan["digest"], (run, plan["digest"])
assert len(end["memory"]) == ranks == len(plan["ranks"])
for want, use in zip(plan["ranks"], end["memory"]):
    print(name, want["rank"], use, want["peak_allocated"])
    engine = want["masters"] + want["accumulators"] + want["moments"] + want["frozen"] + want["slots"] + want["sums"]
    assert use["at_rest_measured"] == use["at_rest_predicted"] == engine, (engine, use)
    assert use["peak_measured"] <= use["peak_predicted"] <= 1.03 * use["peak_measured"], use
    assert use["peak_predicted"] <= want["peak_allocated"], (want, use)
    assert use["resident_measured"] <= 1.03 * use["resident_predicted"] + (16 << 20), use
P
}
dflash=(sf-train dflash -c run.toml --draft dflash0 --set training.num_anchors=3 --set training.max_steps=2)
sft=(sf-train sft -c run.toml --target target --data chats.jsonl --set training.max_steps=2)
for ranks in 1 2 3; do hold "eagle3-$ranks" $ranks "${train[@]}" --from features; done
for ranks in 1 2; do hold "eagle3-lk-$ranks" $ranks "${train[@]}" --from features --set training.lk_loss_type=lambda --set engine.mode=auto; done
hold eagle3-flat 2 "${train[@]}" --from features --set shard.backend=fsdp1
for ranks in 1 2; do
  hold "dflash-$ranks" $ranks "${dflash[@]}" --from features-dflash
  hold "sft-$ranks" $ranks "${sft[@]}" --set training.batch_size=2
done
# blocks KIND: a new draft, what it reads of the target, and its runs of one and two ranks.
blocks() {
  local kind=$1 ranks
  sf-init draft "$kind" --target target --set draft.hidden_layers=2 --set draft.block_size=4 --set draft.sliding_window=3 -o "$kind-0" >/dev/null 2>err || { cat err; die "$kind"; }
  sf-capture features -c run.toml --target target --draft "$kind-0" --data chats.jsonl -o "features-$kind" >/dev/null 2>err || { cat err; die "$kind"; }
  for ranks in 1 2; do
    hold "$kind-$ranks" $ranks sf-train "$kind" -c run.toml --draft "$kind-0" --from "features-$kind" --set training.num_anchors=3 --set training.max_steps=2 --set engine.mode=auto
  done
}
for kind in dflash2 dspark domino; do blocks $kind; done
sf-init draft peagle --target target --draft-vocab 64 --data chats.jsonl --set draft.hidden_layers=2 -o peagle0 >/dev/null 2>err || { cat err; die peagle; }
for ranks in 1 2; do
  hold "peagle-$ranks" $ranks sf-train peagle -c run.toml --draft peagle0 --from features --set training.num_depths=4 --set training.max_steps=2 --set engine.mode=auto
done
# Experts: all parameters, adapters of linear layers alone, and of experts.
python3 "$here/../support/make_tiny_model.py" moe family=qwen3_moe layers=2 && sf-init model moe -o experts >/dev/null 2>err || { cat err; die experts; }
sf-init lora experts --rank 2 --targets q_proj,o_proj -o dense0 >/dev/null 2>err || { cat err; die "adapters of linear layers"; }
sf-init lora experts --rank 2 --targets q_proj --experts experts.gate_up_proj,experts.down_proj -o fused0 >/dev/null 2>err || { cat err; die "adapters of experts"; }
moe=(sf-train sft -c run.toml --target experts --data chats.jsonl --set training.max_steps=2)
for ranks in 1 2; do
  hold "experts-$ranks" $ranks "${moe[@]}"
  for kind in dense fused; do hold "experts-$kind-$ranks" $ranks "${moe[@]}" --adapter "$kind""0"; done
done
hold dflash-flat 2 "${dflash[@]}" --from features-dflash --set shard.backend=fsdp1 --set engine.mode=recompute
hold dflash-tables 2 "${dflash[@]}" --from features-dflash --set shard.frozen_tables=target_embedding=rows,target_head=stream
hold sft-replicate 2 "${sft[@]}" --set shard.backend=replicate --set engine.compute_dtype=bf16
hold sft-flat 2 "${sft[@]}" --set shard.backend=fsdp1
hold eagle3-mesh 4 "${train[@]}" --from features --set shard.replicas=2
bytes() { python3 -c "import json; print(max(r['resident'] for r in json.load(open('plan.json'))['ranks']))"; }
hold sft-recompute 2 "${sft[@]}" --set engine.mode=recompute
most=$(bytes)
hold sft-keep 2 "${sft[@]}"
hold sft-auto 2 "${sft[@]}" --set engine.mode=auto --set engine.memory=$((($(bytes) + most) / 2))
[ "$(digest sft-auto/latest)" = "$(digest sft-keep/latest)" ] || die "mode auto gives other bits"
python3 -c "
import json
modes = [g['mode'] for g in json.load(open('plan.json'))['groups']]
assert 'recompute' in modes and 'keep' in modes, modes" || die "mode auto chose one mode for all"
expect 78 "${sft[@]}" --set engine.mode=auto --set engine.memory=1000 -o never --plan
says "does not fit: rank 0 needs" "engine.memory"
expect 78 "${sft[@]}" --set engine.mode=auto --set engine.memory=1000 -o never; says "does not fit: a rank needs" "engine.memory"
expect 0 "${sft[@]}" --set engine.mode=auto --set engine.memory=64GiB -o roomy; says "applied engine.memory=64GiB to the mode of every segment (0 not kept)"
[ ! -e never ] || die "a run that does not fit was begun"

# A plan and a run apply every key alike, each to the same.
for verb in eagle3 dflash dflash2 dspark domino peagle sft; do
  case $verb in
    sft) what=(--target target --data chats.jsonl) ;;
    eagle3 | peagle) what=(--draft "${verb/eagle3/draft}0" --from features) ;;
    dflash) what=(--draft dflash0 --from features-dflash) ;;
    *) what=(--draft "$verb-0" --from "features-$verb") ;;
  esac
  sf-train $verb -c run.toml --set training.max_steps=1 --set training.num_anchors=3 "${what[@]}" -o "all-$verb" --print-config >all.toml
  for how in --plan --quiet; do
    sf-train $verb -v -c all.toml "${what[@]}" -o "all-$verb" "${how/--quiet/--verbose}" 2>&1 >/dev/null |
      grep -o "applied .*" | sort >"$verb$how"
  done
  [ "$(wc -l <"$verb--plan")" -gt 60 ] && diff "$verb--plan" "$verb--quiet" || die "$verb: the plan and the run apply other settings"
done

# refused STATUS TEXT COMMAND...: by the plan and the run, in the same words.
refused() {
  local want=$1 text=$2 plan
  shift 2
  expect "$want" "$@" -o never --plan; says "$text"
  plan=$(grep -o "error: .*" err)
  expect "$want" "$@" -o never; says "$text"
  [ "$plan" = "$(grep -o "error: .*" err)" ] || { cat err; die "the plan said $plan: $*"; }
  [ ! -e never ] || die "begun: $*"
}
asked=(sf-eval generate --target target --questions chats.jsonl)
captured=(sf-capture features --target target --draft draft0 --data chats.jsonl)
refused 78 "is outside the vocabulary" "${asked[@]}" --set "generate.stop_ids=[16777000]"
refused 78 "to 0 drafts" "${asked[@]}" --set speculation.draft_tokens=2
refused 78 "to 0 draws" sf-capture regenerate --target target --prompts chats.jsonl --set generate.top_k=3
refused 78 "host-resident lm_head.weight" "${captured[@]}" --set shard.host_resident=lm_head
refused 78 "to 0 streams" "${captured[@]}" --set stream.bind=127.0.0.2
# A wish that reaches nothing is refused.
for wish in training.kl_scale=2 training.num_anchors=2 shard.host_dir=. engine.memory=1GiB stream.credit_mib=9 comm.interface=lo \
  comm.meet=localhost comm.join_deadline_s=3 training.adapter_dtype=bf16; do
  refused 78 "used by nothing in this run: applied ${wish%=*}" "${train[@]}" --from features --set $wish
done
for wish in training.unroll=3 comm.join_deadline_s=3 training.lambda_base_start=1; do
  refused 78 "used by nothing in this run: applied ${wish%=*}" "${dflash[@]}" --from features-dflash --ranks 2 --set $wish
done
refused 78 'both say where target_head.weight lives' "${dflash[@]}" --from features-dflash --set shard.frozen_tables=target_head=shard,target_head=stream
refused 78 'of which shard.frozen_tables (--set) says "target_embedding=rows"' "${dflash[@]}" --from features-dflash \
  --host-resident target_embedding --set shard.frozen_tables=target_embedding=rows
refused 78 "applied shard.frozen_tables= to 0 tables" "${dflash[@]}" --from features-dflash --set shard.frozen_tables=
refused 78 "used by nothing in this run: applied training.reference_quirks" "${sft[@]}" --set training.reference_quirks=true
refused 78 'comm.group = "nccl"' "${sft[@]}" --set comm.group=nccl
refused 78 'comm.interface = "none0": this host has' "${sft[@]}" --ranks 2 --set comm.group=gloo --set comm.interface=none0
refused 78 'error: --set: training.warmup_ratio = 1 makes' "${sft[@]}" --set training.schedule=constant --set training.warmup_ratio=1
refused 78 "0 positions to train on" "${train[@]}" --from features --set training.epochs=0
# Where a value was given stands in front, whoever refuses it.
refused 78 'error: --set: training.epochs = 0 of' "${train[@]}" --from features --set training.epochs=0
refused 78 'error: --set: shard.frozen_tables: "colums" is no residency' "${train[@]}" --from features --set shard.frozen_tables=colums
refused 78 'error: --set: shard.wrap: no module is of class Odd' "${train[@]}" --from features --set 'shard.wrap=["Odd"]'
refused 78 'error: --set: shard.replicas = 3 does not divide' "${train[@]}" --from features --ranks 2 --set shard.replicas=3
refused 64 "--tee keeps what is streamed" "${train[@]}" --from features --tee never-tee
RANK=0 WORLD_SIZE=2 refused 64 "nothing says where rank 0 is" "${sft[@]}"
expect 0 "${sft[@]}" -o never --plan --set engine.device=cuda; says "no GPU is looked for here"
expect 0 "${train[@]}" --from features -o lambda --set training.lk_loss_type=lambda --set training.kl_scale=2
expect 78 "${sft[@]}" -o never --set shard.frozen_tables=host; says "used by nothing in this run: applied shard.frozen_tables"
for wish in top_k=3 top_p=0.5 min_p=0.1 seed=3; do
  expect 78 sf-eval generate --target target --questions chats.jsonl --set generate.$wish; says "used by nothing in this run: applied generate"
done
expect 0 "${train[@]}" --from features -o ours --set training.shard_frozen_tables=true; says "to 0 tables"
[ "$(digest ours/latest)" = "$(digest eagle3-1/latest)" ] || die "the reference's option changed EAGLE3"
sf-eval report eagle3-1 --plan >/dev/null 2>err || { cat err; die "report --plan"; }

shard=(--set training.shard_frozen_tables=true)
applied="applied training.shard_frozen_tables=true to 2 tables by engine"
stream() { sf-capture features -c run.toml --target target --draft dflash0 --data chats.jsonl 2>capture.err; }
offline() { "${dflash[@]}" "${shard[@]}" --from features-dflash -o "$1"; }
ranks() { "${dflash[@]}" "${shard[@]}" --from features-dflash --ranks 2 -o "$1"; }
pipe() { stream | "${dflash[@]}" "${shard[@]}" --from - -o "$1"; }
launcher() { RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 "${dflash[@]}" "${shard[@]}" --from features-dflash -o "$1"; }
srun() { SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0 SLURM_STEP_ID=0 SLURM_JOB_ID=7 SLURM_STEP_TASKS_PER_NODE=1 SLURM_NODEID=0 "${dflash[@]}" "${shard[@]}" --from features-dflash -o "$1"; }
for path in offline ranks pipe launcher srun; do
  expect 0 $path "with.$path"
  says "$applied"
  if sf-train --build-info | grep -q '"faults": *true'; then
    SF_FAULT=tool.drop_option expect 78 $path "without.$path"
    says "used by nothing in this run: training.shard_frozen_tables"
  fi
done
echo "plans hold; no option is lost on 5 launch paths"

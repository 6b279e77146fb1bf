#!/usr/bin/env bash
# Every kind of draft and loss on a tiny target: equal bits for 1, 2 and 3 ranks, and for a run stopped half-way.
. "$(dirname "$0")/lib.sh"
tiny_setup tied=false

# same VERB DRAFT FEATURES OPTION...: 3 ranks, and 1 rank stopped and gone on with by 2, end in one rank's weights
same() {
  local verb=$1 draft=$2 from=$3 alone rest
  shift 3
  rest=(-c run.toml --draft "$draft" --from "$from" --set training.max_steps=2 "$@")
  rm -rf alone many parts
  sf-train "$verb" "${rest[@]}" -o alone >/dev/null 2>err || { cat err; die "$verb $*"; }
  alone=$(digest alone/latest)
  sf-train "$verb" "${rest[@]}" --ranks 3 -o many >/dev/null 2>err || { cat err; die "$verb $* on 3 ranks"; }
  [ "$(digest many/latest)" = "$alone" ] || die "$verb $*: weights of 3 ranks differ from one rank's"
  [ "$(losses many)" = "$(losses alone)" ] || die "$verb $*: losses of 3 ranks differ from one rank's"
  sf-train "$verb" "${rest[@]}" --set training.max_steps=1 --set training.total_steps=10 -o parts >/dev/null 2>err || { cat err; die "$verb $*: the first part"; }
  sf-train "$verb" "${rest[@]}" --set training.total_steps=10 --ranks 2 --resume auto -o parts >/dev/null 2>err || { cat err; die "$verb $*: the second part"; }
  [ "$(digest parts/latest)" = "$alone" ] || die "$verb $*: a stopped run ended in other weights"
}

capture() { sf-capture features -c run.toml --target target --draft "$1" --data chats.jsonl -o "$2" >/dev/null 2>err || { cat err; die "features of $1"; }; }
init() { sf-init draft "$1" --target target --set draft.hidden_layers=2 --set draft.block_size=4 "${@:3}" -o "$2" >/dev/null 2>err || { cat err; die "init $2"; }; }

features -o feats >/dev/null 2>err || { cat err; die features; }
same eagle3 draft0 feats --set training.lk_loss_type=lambda --set training.kl_decay=3

few=(--set training.num_anchors=3 --set training.loss_decay_gamma=4)
init dflash sliding --set draft.sliding_window=5
capture sliding states
same dflash sliding states "${few[@]}" --set training.loss_type=dpace

init dflash2 dflash2-0 --set draft.conv_group_size=8 --set draft.selector_rank=8 --set draft.selector_top_k=4
same dflash2 dflash2-0 states "${few[@]}" --set training.dflash2_selector_ramp_ratio=0.5

init dspark dspark0 --set draft.markov_rank=8 --set draft.markov_head_type=rnn --set draft.confidence_head_with_markov=true
capture dspark0 with-norm
same dspark dspark0 with-norm "${few[@]}"

init domino domino0 --set draft.emb_dim=8 --set draft.gru_hidden_dim=12
same domino domino0 states "${few[@]}"  # features of one form serve every family that reads it

sf-init draft peagle --target target --draft-vocab 64 --data chats.jsonl --set draft.hidden_layers=2 -o peagle0 >/dev/null 2>err || { cat err; die "init peagle"; }
same peagle peagle0 feats --set training.num_depths=4

expect 76 sf-train dspark -c run.toml --draft dspark0 --from states -o never
says "algorithm"
expect 78 sf-train dflash -c run.toml --draft domino0 --from states -o never
says "architecture \"DominoDraftModel\" is of a domino draft, wanted a dflash draft"

# Each is decoded: greedy text is the plain one, and every verification commits at least one token.
head -2 chats.jsonl >prompts.jsonl
for draft in draft0 sliding dflash2-0 dspark0 domino0 peagle0; do
  accept=(sf-eval accept --target target --draft "$draft" --prompts prompts.jsonl --set generate.max_new_tokens=12 --format json)
  "${accept[@]}" >accept.json 2>err || { cat err; die "accept $draft"; }
  python3 - "$draft" <<'P' || die "accept $draft"
import json, sys
found = json.load(open("accept.json"))
print(sys.argv[1], found)
assert found["greedy_different"] == 0 and found["prompts"] == 2, found
assert found["verifications"] <= found["committed"] <= 4 * found["verifications"], found
assert found["verifications"] == found["positions"][0]["tried"] and found["draft_forwards"] >= 2, found
P
done
# A tree of proposals: plain tokens too, drawn ones by the same draws.
sf-eval generate --target target --questions prompts.jsonl --set generate.max_new_tokens=12 --set generate.temperature=1 -o plain.jsonl >/dev/null 2>err || { cat err; die "plain answers"; }
for draft in draft0 peagle0; do
  tree=(--draft "$draft" --set speculation.tree_nodes=40 --set speculation.tree_width=6 --set generate.max_new_tokens=12)
  sf-eval accept --target target --prompts prompts.jsonl "${tree[@]}" --format json >accept.json 2>err || { cat err; die "tree of $draft"; }
  python3 -c "
import json
found = json.load(open('accept.json'))
assert found['greedy_different'] == 0 and found['target_forwards_draft'] < found['verifications'] + 2, found" || die "tree of $draft"
  sf-eval generate --target target --questions prompts.jsonl "${tree[@]}" --set generate.temperature=1 -o "tree-$draft.jsonl" >/dev/null 2>err || { cat err; die "drawn tree of $draft"; }
  cmp <(tail -n +2 plain.jsonl) <(tail -n +2 "tree-$draft.jsonl") || die "answers drawn through a tree of $draft are not the plain ones"
done
for plan in "" --plan; do
  expect 78 sf-eval accept --target target --draft domino0 --prompts prompts.jsonl --set speculation.tree_nodes=9 $plan
  says "found a domino draft"
done

sf-eval accept --target target --draft dspark0 --prompts prompts.jsonl --set generate.max_new_tokens=12 \
  --set speculation.least_confidence=1 --format json >accept.json 2>err || { cat err; die "accept without confidence"; }
python3 -c "
import json
found = json.load(open('accept.json'))
assert found['acceptance_length'] == 1 and found['positions'][0]['tried'] == 0, found" || die "least_confidence reaches nothing"
expect 78 sf-eval accept --target target --draft domino0 --prompts prompts.jsonl --set speculation.least_confidence=1
says "speculation.least_confidence"
sf-eval accept --target target --draft domino0 --prompts prompts.jsonl --plan >out 2>err || { cat err; die "accept --plan"; }

# Each is whole, exported under the names its reference has, and comes back the same.
for draft in draft0:eagle3/t3 sliding:dflash/sliding dflash2-0: dspark0:dspark/rnn domino0:domino/shift peagle0:peagle/two_layers; do
  golden=${draft#*:} draft=${draft%%:*}
  sf-shard verify "$draft" >out 2>err || { cat out err; die "verify $draft"; }
  for to in hf sglang vllm; do
    sf-shard export "$draft" --to $to -o "exported-$draft-$to" >/dev/null 2>err || { cat err; die "export $draft --to $to"; }
    sf-shard import "exported-$draft-$to" --target target -o "back-$draft-$to" >/dev/null 2>err || { cat err; die "import $draft from $to"; }
    sf-shard diff "$draft" "back-$draft-$to" >out 2>err || { cat out err; die "$draft came back another from $to"; }
    sf-shard verify "back-$draft-$to" >/dev/null || die "verify back-$draft-$to"
    # And is begun with, whole, under any of their names.
    family=$(sed 's/.*"algorithm":"\([a-z0-9]*\)".*/\1/' <<<"$(tr -d ' \n' <"$draft/manifest.json")")
    sf-init draft "$family" --target target --from "exported-$draft-$to" -o "warm-$draft-$to" >/dev/null 2>err || { cat err; die "begin with $draft from $to"; }
    says "tensors taken from exported-$draft-$to" "0 missing there" "left over"
    ! grep "no place in the draft" err || die "a tensor of $draft was left over from $to"
    sf-shard diff "$draft" "warm-$draft-$to" >out 2>err || { cat out err; die "$draft was begun with as another from $to"; }
  done
  python3 - "exported-$draft-hf/model.safetensors" "$here/../golden/$golden/case.json" <<'P' || die "keys of $draft"
import json, os, re, struct, sys
with open(sys.argv[1], "rb") as f:
    found = set(json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))) - {"__metadata__"}
plain = lambda names: {re.sub(r"layers\.\d+", "layers.N", name) for name in names}
found = plain(found)
if os.path.basename(os.path.dirname(sys.argv[2])) == "golden":  # no golden case: the list of eagle_dflash 2b
    conv = {f"layers.N.{m}_conv.{k}" for m in ("attention", "mlp") for k in ("base_kernel", "kernel_projection.weight")}
    own = {f"candidate_selector.{k}" for k in ("predecessor_codebook", "successor_codebook", "hidden_projection.weight")}
    assert conv | own <= found, sorted(found)
else:
    wanted = plain(n.removeprefix("weights/") for n in json.load(open(sys.argv[2]))["tensors"] if n.startswith("weights/"))
    assert found == wanted, (sorted(found - wanted), sorted(wanted - found))
P
done

# What a published draft lacks begins anew, as a new draft of that seed has it; what it has besides is left, and told.
mkdir odd && cp exported-sliding-hf/config.json odd
python3 - <<'P'
import json, struct
with open("exported-sliding-hf/model.safetensors", "rb") as f:
    head, body = json.loads(f.read(struct.unpack("<Q", f.read(8))[0])), f.read()
head["odd.weight"] = head.pop("norm.weight")
text = json.dumps(head).encode()
open("odd/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body)
P
sf-init draft dflash --target target --from odd -o from-odd >/dev/null 2>err || { cat err; die "a draft that lacks a tensor"; }
says "24 tensors taken from odd" "1 missing there, begun anew: norm.weight (ones)" "1 left over: odd.weight (no place in the draft)"
sf-init draft dspark --target target --from exported-sliding-hf --set draft.markov_rank=8 -o from-dflash >/dev/null 2>err || { cat err; die "DSpark from DFlash"; }
says "25 tensors taken from exported-sliding-hf" "markov_head.markov_w1.weight (" "0 left over"
python3 - <<'P' || die "the list of what was taken is not kept"
import json
begun = json.load(open("from-dflash/manifest.json"))["warm_start"]
assert begun["source"] == "exported-sliding-hf" and len(begun["taken"]) == 25 and begun["left"] == {}, begun
assert all(name.split(".")[0] in ("markov_head", "confidence_head") for name in begun["missing"]) and begun["missing"], begun
P
sf-train dspark -c run.toml --draft from-dflash --from with-norm --set training.max_steps=1 "${few[@]}" -o run-from-dflash >/dev/null 2>err || { cat err; die "training what was begun with"; }
python3 - <<'P'
import json
config = json.load(open("odd/config.json"))
config["intermediate_size"] += 8
json.dump(config, open("odd/config.json", "w"))
P
expect 65 sf-init draft dflash --target target --from odd -o never
says "have another shape than config.json's: layers.0.mlp.gate_proj.weight is ["
expect 78 sf-init draft peagle --target target --from exported-sliding-hf -o never
says "a draft of dflash cannot begin as one of peagle"
for wish in "--draft-vocab 64" "--reference-quirks" "--set draft.hidden_layers=2"; do
  # shellcheck disable=SC2086
  expect 78 sf-init draft dflash --target target --from exported-sliding-hf $wish -o never; says "to 0 shapes (those of --from are taken)"
done
expect 65 sf-train dflash -c run.toml --draft exported-sliding-hf --from states -o never
says "sf-init draft ALGORITHM --from exported-sliding-hf"

# Each is laid out from shapes alone.
for algorithm in eagle3 dflash dflash2 dspark domino peagle; do
  plan=(sf-shard plan --set plan.target=target --set plan.algorithm="$algorithm" --ranks 2)
  "${plan[@]}" --set engine.mode=auto >out 2>err || { cat err; die "plan $algorithm"; }
  grep -q "^$algorithm on 2 ranks" out || die "plan $algorithm says something else"
done

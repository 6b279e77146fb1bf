#!/usr/bin/env bash
# Bad input: one clear line, the table's status, nothing half-written.
. "$(dirname "$0")/lib.sh"
tiny_setup
clean() { [ ! -e "$1" ] && [ -z "$(find . -maxdepth 1 -name ".$1*" -print -quit)" ] || die "$1 was left behind"; }

cp -r hf cut && truncate -s 100000 cut/model.safetensors
expect 65 sf-init model cut -o x; says model.safetensors; clean x
cp -r hf stage && sed -i 's/"type": "ByteLevel", "add_prefix_space": false/"type": "Whatever", "add_prefix_space": false/' stage/tokenizer.json
expect 65 sf-init model stage -o x; says Whatever; clean x
printf 'GGUF\003\000\000\000\377\377\377\377\377\377\377\377' >bad.gguf
expect 65 sf-init model bad.gguf -o x; clean x
python3 "$here/../support/make_tiny_model.py" odd family=falcon
expect 78 sf-init model odd -o x; says falcon; clean x
expect 66 sf-init model nowhere -o x; says nowhere; clean x
for part in config.json model.safetensors tokenizer.json; do
  rm -rf cut && cp -r hf cut && rm cut/$part
  expect 66 sf-init model cut -o x; says "$part"; clean x
done
rm -rf cut && cp -r hf cut && sed -i 's/"hidden_size": 32/"hidden_size": null/' cut/config.json
expect 65 sf-init model cut -o x; says "hidden_size is null"; clean x
expect 73 sf-init model hf -o target; says target
{ head -n 3 chats.jsonl; echo '{"messages": ['; } >broken.jsonl
expect 65 sf-init draft eagle3 --target target --draft-vocab 64 --data broken.jsonl -o x; says broken.jsonl:4; clean x
expect 66 sf-init draft eagle3 --target target --draft-vocab 64 --data nothing.jsonl -o x; clean x
expect 64 sf-train eagle3 --draft draft0 --from feats -o x --set training.learning_rte=1; says "did you mean" learning_rate; clean x
expect 64 sf-train eagle3 --draft draft0 --form feats -o x; says "--from"; clean x
expect 78 sf-train eagle3 --draft draft0 --from feats -o x --set training.learning_rate=-1; says training.learning_rate; clean x
expect 66 sf-train eagle3 -c run.toml --draft draft0 --from nowhere -o x; clean x
expect 64 script -qec "sf-train eagle3 -c run.toml --draft draft0 --from - -o x" /dev/null; clean x

expect 64 script -qec "sf-capture features -c run.toml --target target --draft draft0 --data chats.jsonl" /dev/null
grep -q "terminal" out || { cat out; die "capture does not say that nobody reads a terminal"; }
echo '{"id":"p","prompt":"a"}' >twice.jsonl; echo '{"prompt":"b"}' >>twice.jsonl; echo '{"id":"p","prompt":"c"}' >>twice.jsonl
expect 65 sf-capture regenerate --target target --prompts twice.jsonl -o x; says "twice.jsonl:3: the id p is that of twice.jsonl:1"
clean x

# A draft of another target, and a stream whose tokenizer differs.
python3 "$here/../support/make_tiny_model.py" hf2 seed=9 && sf-init model hf2 -o target2 >/dev/null 2>&1
# --target of an export is a draft's, and its own.
expect 64 sf-shard export target --to hf --target target2 -o x; says "names the target of a draft, and target is a model"; clean x
expect 66 sf-shard export draft0 --to vllm --target nowhere -o x; says "--target nowhere"; clean x
for to in hf sglang vllm; do
  expect 76 sf-shard export draft0 --to $to --target target2 -o x; clean x
done

# Words for bytes: where they stand, and which key.
printf '[plan]\nbandwidth = "fast"\ntarget = "target"\nalgorithm = "sft"\n' >words.toml
expect 78 sf-shard plan -c words.toml; says "words.toml:2:1: plan.bandwidth: wanted bytes"
expect 64 sf-shard plan -c words.toml --bandwidth slow; says "--bandwidth: wanted bytes"
expect 78 sf-shard plan -c words.toml --set plan.bandwidth=1G --set plan.memory=much; says "--set: plan.memory: wanted bytes"
printf '[engine]\nmode = "auto"\nmemory = "much"\n' >words.toml
expect 78 sf-train sft -c words.toml --target target --data chats.jsonl -o x; says "words.toml:3:1: engine.memory: wanted bytes"; clean x
# A plan that does not fit is a plan all the same.
expect 78 sf-shard plan --set plan.target=target --set plan.algorithm=sft --memory 1000 -o plan.txt
says "does not fit"; grep -q "what would help" plan.txt || die "the plan was not written"
expect 78 sf-shard plan --set plan.target=target --set plan.algorithm=sft --set plan.draft=draft0; says "applied plan.draft=draft0 to 0 shapes"

# Half a set of variables, or two sets.
ranks() { expect 64 env "$@" sf-train sft --target target --data chats.jsonl -o x; clean x; }
ranks RANK=0 WORLD_SIZE=2 LOCAL_RANK=0; says "LOCAL_WORLD_SIZE is missing"
ranks RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=3; says "LOCAL_WORLD_SIZE=3"
ranks RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=http; says 'MASTER_PORT="http": wanted a whole number'
expect 64 env SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_STEP_ID=0 sf-train sft --target target --data chats.jsonl --ranks 2 -o x
says "--ranks 2 contradicts the environment (slurm)"; clean x

# What is verified is whole or not; what cannot be looked at is neither.
printf 'GIF89a, which is long enough' >foreign.safetensors
expect 65 sf-shard inspect foreign.safetensors; says "not a safetensors file"
expect 76 sf-eval accept --target target2 --draft draft0 --prompts chats.jsonl; says target
sed -i 's/"tr_unused"//' hf2/tokenizer.json && python3 - <<'P'
import json
t = json.load(open("hf2/tokenizer.json")); t["model"]["merges"] = t["model"]["merges"][:-1]; json.dump(t, open("hf2/tokenizer.json", "w"))
P
sf-init model hf2 -o target3 >/dev/null 2>&1
expect 76 sf-capture features -c run.toml --target target3 --draft draft0 --data chats.jsonl -o x; clean x
sf-init draft eagle3 --target target3 --draft-vocab 64 --data chats.jsonl -o draft3 >/dev/null 2>&1
ends=$(features 2>cap.err | sf-train eagle3 -c run.toml --draft draft3 --from - --ranks 2 -o x 2>err; echo "${PIPESTATUS[@]}")
[ "$ends" = "76 76" ] || { cat cap.err err; die "a stream of another target: the two sides ended with $ends"; }
says "differs in target"; clean x
grep -q "refused this stream: .*differs in target" cap.err || { cat cap.err; die "capture does not say why it was refused"; }

# Rows the template rejects go to a file with their reasons; rows without a supervised token are void; the run goes on.
{ head -n 20 chats.jsonl; echo '{"id":"odd","messages":[{"role":"user"}]}'; echo '{"id":"mute","messages":[{"role":"user","content":"the"}]}'; } >mixed.jsonl
sf-capture features -c run.toml --target target --draft draft0 --data mixed.jsonl -o feats >/dev/null 2>err || { cat err; die mixed; }
cp -r feats halved && rm halved/*.frames
expect 1 sf-shard verify halved; grep -q "frames" out || { cat out err; die "what is missing is not named"; }
grep -q '"odd"' mixed.jsonl.rejected || die "the odd row and its reason are in no file"
sf-train eagle3 -c run.toml --draft draft0 --from feats -o run --set training.epochs=1 >/dev/null 2>err || { cat err; die "void rows stopped the run"; }
says void

# A run takes no directory of another verb, none of a living run, and leaves nothing if it fails before its first step.
for dir in feats draft0 target hf; do
  expect 73 sf-train eagle3 -c run.toml --draft draft0 --from feats -o $dir; says "$dir holds"
done
expect 73 sf-train eagle3 -c run.toml --draft draft0 --from feats -o run --set training.epochs=1; says "holds a run already"
sf-train eagle3 -c run.toml --draft draft0 --from feats -o live --set training.epochs=10000 >/dev/null 2>live.err &
for _ in $(seq 200); do [ -s live/metrics.jsonl ] && break; sleep 0.05; done
for ranks in 1 2; do
  expect 73 sf-train eagle3 -c run.toml --draft draft0 --from feats -o live --ranks $ranks --resume auto
  says "live is in use by sf-train eagle3" "(pid $!"
done
expect 73 sf-train sft -c run.toml --target target --data chats.jsonl -n -o live; says "live is in use by sf-train eagle3"
kill $! && wait $! || [ $? = 75 ] || die "the run that was in the way ended with $?"
expect 78 sf-train eagle3 -c run.toml --draft draft0 --from feats -o x --set engine.accumulate=accumulate_local; says engine.numerics; clean x
expect 78 sf-train eagle3 -c run.toml --draft draft0 --from feats -o x --set shard.replicas=2; says "does not divide"; clean x
cp -r feats torn && truncate -s 100 torn/rows-0-00000.frames
expect 65 sf-train eagle3 -c run.toml --draft draft0 --from torn -o x; says truncated; clean x

# A plan refuses what the run would, and makes nothing.
sft=(sf-train sft -c run.toml --target target -n)
expect 66 "${sft[@]}" --data nowhere.jsonl -o x; says nowhere.jsonl; clean x
expect 65 "${sft[@]}" --data broken.jsonl -o x; says broken.jsonl:4; clean x
expect 64 "${sft[@]}" -o x; says "--data"
for plan in "sf-train sft --target target --data chats.jsonl" "sf-train eagle3 --draft draft0 --from feats"; do
  $plan -c run.toml -n -o x >/dev/null 2>err || { cat err; die "$plan --plan"; }
  clean x
  expect 73 $plan -c run.toml -n -o feats; says "feats holds"
  expect 73 $plan -c run.toml -n -o run; says "holds a run already"
  expect 73 $plan -c run.toml -n -o chats.jsonl/x; says "chats.jsonl"
done
expect 66 sf-train eagle3 -c run.toml --draft draft0 --from nowhere -n -o x
expect 76 sf-train eagle3 -c run.toml --draft draft3 --from feats -n -o x; says "differs in target"

expect 73 sf-init model hf -n -o target; says "target exists already"
expect 73 sf-init draft eagle3 --target target -n -o draft0; says "draft0 exists already"
expect 64 sf-capture features --synthetic qwen3-8 -o x -n; says "did you mean qwen3-8b?"
ends=$(features 2>cap.err | sf-train eagle3 -c run.toml --draft draft0 --from - -o run --resume auto 2>err; echo "${PIPESTATUS[@]}")
[ "$ends" = "76 76" ] || { cat cap.err err; die "a run of other samples: the two sides ended with $ends"; }
says "trained on other samples"
grep -q "refused this stream: .*trained on other samples" cap.err || { cat cap.err; die "capture does not say why it was refused"; }

# One fault of two ranks is one line, whoever saw it.
expect 66 sf-train eagle3 -c run.toml --draft nowhere --from feats --ranks 2 -o x
[ "$(grep -c 'error: ' err)" = 1 ] || { cat err; die "two ranks told one error twice"; }
expect 65 sf-train eagle3 -c run.toml --draft draft0 --from torn --ranks 2 -o x; clean x
[ "$(grep -c 'error: ' err)" = 1 ] || { cat err; die "two ranks told one error twice"; }

# Full disk at any byte: 74, the old state stays, nothing half-written.
for kib in 0 4 60 200; do
  expect 74 bash -c "ulimit -f $kib; trap '' XFSZ; exec sf-init model hf -o full"; clean full
done

# Files of a model that lie about themselves: each kind of fault with all its names at once, before anything is written.
edit() { # edit DIR PYTHON: h is the header, d the data, save() writes them
  rm -rf odd && cp -r "${1:-hf}" odd && python3 - "$2" <<'P'
import json, os, struct, sys
path = "odd/model.safetensors"
raw = open(path, "rb").read()
size = struct.unpack("<Q", raw[:8])[0]
h, d = json.loads(raw[8:8 + size]), bytearray(raw[8 + size:])
names = [name for name in h if name != "__metadata__"]
def save(file="model.safetensors"):
    text = json.dumps(h).encode()
    text += b" " * (-len(text) % 8)
    open("odd/" + file, "wb").write(struct.pack("<Q", len(text)) + text + d)
def index(file_of):
    os.remove(path)
    json.dump({"weight_map": {n: file_of(i) for i, n in enumerate(names)}}, open(path + ".index.json", "w"))
exec(sys.argv[1])
P
}
edit hf 'for n in names[:24]: h[n + "_x"] = h.pop(n)
h[names[25]]["shape"] = [1] + h[names[25]]["shape"]; save()'
expect 65 sf-init model odd -o x; clean x
says "24 tensors that config.json asks for are missing" "and 4 more" "1 have another shape" "24 have no place in the llama family"
edit hf 'save("a.safetensors"); save("b.safetensors"); index(lambda i: "ab"[i % 2] + ".safetensors")'
expect 65 sf-init model odd -o x; says "are duplicates, or unknown to the index"; clean x
edit hf 'save("a.safetensors"); index(lambda i: ["a", "gone-1", "gone-2"][i % 3] + ".safetensors")'
expect 66 sf-init model odd -o x; says "2 of 3 files that the index names are absent: gone-1.safetensors"; clean x
edit hf 'open(path, "wb").write(struct.pack("<Q", 100 << 30) + raw[8:]); os.truncate(path, 101 << 30)'
expect 65 sf-init model odd -o x; says "a header of 107374182400 bytes is announced"; clean x
edit hf 'o = h[names[2]]["data_offsets"]; h[names[2]]["data_offsets"] = [o[0] - 4, o[1] - 4]; save()'
expect 65 sf-init model odd -o x; says "an overlap in the data"; clean x
edit hf 'b = h["model.norm.weight"]["data_offsets"][0]; d[b:b + 4] = struct.pack("<f", float("nan")); save()'
expect 65 sf-init model odd --strict -o x; says "model.norm.weight" "refused by --strict"; clean x
expect 0 sf-init model odd -o x; says "1 tensors hold NaN or infinity: model.norm.weight"; rm -rf x
rm -rf newer && cp -r target newer && sed -i 's/"format": 1,/"format": 2,/' newer/manifest.json
for verb in inspect reshard "export --to hf"; do
  expect 76 sf-shard $verb newer -o x; says "manifest format 2 found, this version reads 1"; clean x
done
expect 1 sf-shard verify newer; grep -q "manifest format 2" out || die "verify does not name the newer manifest"
expect 73 sf-init model hf -o /proc/x; says "cannot create /proc/"

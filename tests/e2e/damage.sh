#!/usr/bin/env bash
# What was changed, broken or damaged is refused or named, never taken in silence.
. "$(dirname "$0")/lib.sh"
tiny_setup
features -o feats >/dev/null 2>err || { cat err; die features; }
clean() { [ ! -e "$1" ] && [ -z "$(find . -maxdepth 1 -name ".$1*" -print -quit)" ] || die "$1 was left behind"; }

# What was changed after it was published is not what it says it is.
changed() { rm -rf "$2" && cp -r "$1" "$2"; }
changed target rope && sed -i 's/"rope_theta": 10000/"rope_theta": 20000/' rope/config.json
for verb in "sf-eval generate --questions chats.jsonl" "sf-eval accept --draft draft0 --prompts chats.jsonl" \
  "sf-capture features --draft draft0 --data chats.jsonl -o x" "sf-train sft --data chats.jsonl -o x"; do
  expect 65 $verb --target rope; says "rope is not what was published: config.json"; clean x
done
changed target flip && printf '\377' | dd of=flip/model.safetensors bs=1 seek=9000 conv=notrunc status=none
expect 65 sf-eval generate --target flip --questions chats.jsonl; says "are not those that were published"
for verb in "sf-shard export flip --to hf" "sf-shard import flip" "sf-init model flip --dtype bf16"; do
  expect 65 $verb -o x; says "the bytes of tensor model.embed_tokens.weight are not those that were published"; clean x
done
for ranks in 1 2; do
  expect 65 sf-train sft --target flip --data chats.jsonl --ranks $ranks -o x; says "are not those that were published"; clean x
done
changed draft0 flipped && printf '\377' | dd of=flipped/model.safetensors bs=1 seek=9000 conv=notrunc status=none
expect 65 sf-train eagle3 -c run.toml --draft flipped --from feats --ranks 2 -o x; says "are not those that were published"; clean x
expect 65 sf-train eagle3 -c run.toml --draft draft0 --from feats --target flip --ranks 2 -o x; says "are not those that were published"; clean x
changed hf far && echo '{"eos_token_id": 99999}' >far/generation_config.json
expect 65 sf-init model far -o x; says "far/generation_config.json: eos_token_id: 99999 is no token"; clean x
expect 65 sf-eval generate --target far --questions chats.jsonl; says "far/generation_config.json"
changed target bare && echo '{}' >bare/manifest.json
expect 65 sf-eval generate --target bare --questions chats.jsonl; says "is no manifest of a checkpoint"
changed draft0 draft-words && sed -i 's/"rms_norm_eps": 1e-06/"rms_norm_eps": 1e-05/' draft-words/config.json
expect 65 sf-eval accept --target target --draft draft-words --prompts chats.jsonl; says "draft-words is not what was published"
changed hf five && sed -i 's/"chat_template": ".*", "eos/"chat_template": 5, "eos/' five/tokenizer_config.json
expect 65 sf-eval generate --target five --questions chats.jsonl; says "five/tokenizer_config.json: chat_template is integer"
changed hf no && echo '{{ raise_exception("no") }}' >no/chat_template.jinja
expect 65 sf-eval generate --target no --questions chats.jsonl; says "chats.jsonl: question c0, chat template: no"

# A model whose output is not finite gives no answers and teaches nothing.
python3 - <<'P'
import json, shutil, struct
shutil.copytree("hf", "nan", dirs_exist_ok=True)
data = bytearray(open("nan/model.safetensors", "rb").read())
size = struct.unpack("<Q", data[:8])[0]
begin, end = json.loads(data[8:8 + size])["model.norm.weight"]["data_offsets"]
data[8 + size + begin:8 + size + end] = struct.pack("<f", float("nan")) * ((end - begin) // 4)
open("nan/model.safetensors", "wb").write(data)
P
sf-init model nan -o nan-target >/dev/null 2>&1
sf-init draft eagle3 --target nan-target --draft-vocab 64 --data chats.jsonl -o nan-draft >/dev/null 2>&1
expect 65 sf-eval generate --target nan-target --questions chats.jsonl; says "finite: the model's output is broken"
expect 65 sf-capture features --target nan-target --draft nan-draft --data chats.jsonl -o x; says "row 0 (id c0)" "not finite"; rm -rf x .x*
expect 65 sf-train sft -c run.toml --target nan-target --data chats.jsonl -o x --set training.max_steps=1; says "none of the 1 steps"
[ ! -e x/latest ] || die "a run that learned nothing published a checkpoint"
rm -rf x


# A damaged checkpoint is passed over aloud; a run with no other is not begun anew.
two=(sf-train eagle3 -c run.toml --draft draft0 --from feats -o two --set training.checkpoint_every=1 --set training.max_steps=2)
"${two[@]}" >/dev/null 2>err || { cat err; die "two steps"; }
cp -r two three
printf '\377' | dd of=three/step-2/optimizer.safetensors bs=1 seek=9000 conv=notrunc status=none
expect 0 "${two[@]/#two/three}" --resume auto --ranks 2 -q; says "passed over a damaged checkpoint: step-2: not what was published: optimizer.safetensors"
echo '{}' >two/step-2/config.json
expect 0 "${two[@]}" --resume auto -q; says "passed over a damaged checkpoint: step-2"
for step in two/step-*; do echo '{}' >"$step/config.json"; done
expect 65 "${two[@]}" --resume auto; says "no checkpoint of two is whole"
expect 73 "${two[@]}"; says "holds a run already"

python3 "$SF_SOURCE"/tests/support/make_tiny_model.py hf layers=1 family=qwen3 >/dev/null
sf-init model hf -o target >/dev/null 2>&1
sf-init lora target --targets q_proj -o adapter >/dev/null 2>&1
sf-shard merge adapter --keep -o merged >/dev/null 2>&1
cp -r target damaged && printf x | dd of=damaged/model.safetensors bs=1 seek=5000 conv=notrunc status=none
plan() { echo "$*"; sf-shard "$@" -n -o out 2>/dev/null; echo "status $?"; }
for verb in merge reshard import "export --to hf"; do plan $verb nosuch; done
plan merge adapter
plan merge adapter --target merged
plan merge merged --undo
plan merge target --undo
plan export target --to hf --dtype bf16
plan export adapter --to hf
plan export target --to peft
plan export damaged --to hf
plan reshard target
plan reshard damaged
plan import hf
plan import damaged
plan import adapter --target target
test ! -e out

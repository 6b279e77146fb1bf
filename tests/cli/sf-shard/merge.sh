python3 "$SF_SOURCE"/tests/support/make_tiny_model.py hf layers=1 family=qwen3 >/dev/null
sf-init model hf -o target >/dev/null 2>&1
sf-init lora target --targets q_proj -o adapter >/dev/null 2>&1
sf-shard merge adapter --keep -o merged && sf-shard merge merged --undo -o back && sf-shard diff target back
sf-shard export adapter --to peft -o peft && ls peft
sf-shard import peft --target target -o again && sf-shard verify again

python3 "$SF_SOURCE"/tests/support/make_tiny_model.py hf layers=1 family=qwen3
sf-init model hf -o target 2>/dev/null && sf-shard export target --to hf -o out 2>/dev/null && sf-shard diff target out
sf-shard import out -o back 2>/dev/null && sf-shard verify back
sf-shard export target --to hf -o out
echo $?
sf-shard import "$SF_SOURCE"/tests/golden/torch_file/evil.pt --target target --draft-config out/config.json -o evil

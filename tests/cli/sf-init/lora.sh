python3 "$SF_SOURCE"/tests/support/make_tiny_model.py hf layers=1 family=qwen3 >/dev/null
sf-init model hf -o target >/dev/null 2>&1
sf-init lora target --rank 4 --targets q_proj,mlp.down_proj -o adapter && sf-shard verify adapter
ls adapter
sf-init lora target --plan -o other
sf-init lora target --targets q_porj -o other
sf-init lora target --targets q_proj --set lora.rank_pattern=k_proj=2 -o other
sf-init lora target --set lora.alpha_pattern=q_proj -o other

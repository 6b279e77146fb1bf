# A published recipe on 2 nodes of 8 GPUs: the frozen table of n-grams once a host, what is work to come by name.
sf-shard plan -c "$SF_SOURCE/man/examples/qwen3.8-flash-next.toml" -c "$SF_SOURCE/man/examples/grpo-16xH200.toml" --ranks 16 \
  --memory 130GiB --bandwidth 50G 2>err | grep -E '^(at rest|peak|host|  host|most|received|activations)'
grep -o 'planned.*by' err

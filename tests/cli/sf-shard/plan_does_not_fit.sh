sf-shard plan -q -c "$SF_SOURCE/man/examples/dflash-qwen3-8b.toml" --ranks 4 --memory 4GiB >/dev/null

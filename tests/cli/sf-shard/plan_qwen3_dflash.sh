# The reference's arithmetic: sharding two tables of 151936 x 4096 bf16 over 4 ranks.
sf-shard plan -q -c "$SF_SOURCE/man/examples/dflash-qwen3-8b.toml" --ranks 4 --memory 80GiB

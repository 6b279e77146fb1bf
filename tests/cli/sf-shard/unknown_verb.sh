sf-shard nonsense

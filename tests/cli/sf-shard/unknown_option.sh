sf-shard --no-such

sf-shard plan

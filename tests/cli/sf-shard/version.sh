sf-shard --version

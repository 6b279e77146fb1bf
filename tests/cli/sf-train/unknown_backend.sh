printf '[shard]\nbackend = "ddp"\n' >run.toml
sf-train eagle3 -c run.toml --print-config

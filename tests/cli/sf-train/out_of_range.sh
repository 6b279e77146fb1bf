printf '[training]\nlearning_rate = -1\n' >run.toml
sf-train eagle3 -c run.toml --print-config

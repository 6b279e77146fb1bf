printf '[training]\nlearning_rat = 1e-3\n' >run.toml
sf-train eagle3 -c run.toml --print-config

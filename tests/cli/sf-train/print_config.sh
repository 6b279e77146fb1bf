# Origins: a file with its line, --set, a flag; the last one wins.
printf '[training]\nunroll = 3\nseed = 7\n' >run.toml
sf-train eagle3 -c run.toml --set training.seed=8 --reference-quirks --print-config | grep -v '# default'

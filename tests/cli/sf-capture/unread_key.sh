# A key of a section that the verb does not read is refused on the command line and tolerated in a shared file.
printf '[training]\nunroll = 3\n' >run.toml
sf-capture features -c run.toml --print-config >/dev/null && echo file tolerated
sf-capture features --set training.unroll=3 --print-config

# A value that is no TOML is as wrong as one of the wrong type: 78, from the command line as from a file.
sf-train eagle3 --draft d --from f -o r --set training.unroll=x; echo $?
sf-train eagle3 --draft d --from f -o r --set training.unroll=1.5; echo $?
printf '[training]\nunroll = "x"\n' >run.toml
sf-train eagle3 --draft d --from f -o r -c run.toml; echo $?

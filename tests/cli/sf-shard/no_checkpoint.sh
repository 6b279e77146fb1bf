mkdir empty
sf-shard inspect nowhere
echo $?
sf-shard verify empty

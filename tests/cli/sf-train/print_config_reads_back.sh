sf-train eagle3 --set training.unroll=5 --print-config >once.toml
sf-train eagle3 -c once.toml --print-config | sed 's/ *#.*//' >twice.toml
sed 's/ *#.*//' once.toml | diff - twice.toml

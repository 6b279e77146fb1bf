sf-train eagle3 -c nowhere.toml --print-config

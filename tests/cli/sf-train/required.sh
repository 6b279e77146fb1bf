sf-train eagle3 --from features -o run

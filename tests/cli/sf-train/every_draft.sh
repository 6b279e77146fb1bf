# Every kind of draft is a verb with the same options.
for kind in eagle3 dflash dflash2 dspark domino peagle; do
  sf-train $kind --from features -o run 2>&1 | head -1
  sf-train $kind --help | head -1
done

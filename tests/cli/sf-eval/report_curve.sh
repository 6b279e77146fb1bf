# A recorded curve.
cd "$SF_SOURCE/man/examples" && sf-eval report -q aime/curve.csv --of 30 -o "$TMPDIR/curve.html" && ls "$TMPDIR"
sf-eval report -q aime/curve.csv --of 29

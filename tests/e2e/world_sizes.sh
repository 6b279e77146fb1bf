#!/usr/bin/env bash
# W = 1, 2, 3, 4 ranks: equal bits in losses and weights for the same windows of 12 micro-batches.
. "$(dirname "$0")/lib.sh"
tiny_setup
features -o feats >/dev/null 2>err || { cat err; die features; }
for w in 1 2 3 4; do
  sf-train eagle3 -c run.toml --draft draft0 --from feats --ranks $w -o run$w >/dev/null 2>err || { cat err; die "W=$w"; }
  losses run$w >losses$w
done
[ "$(wc -l <losses1)" = 10 ] || die "10 steps wanted, $(wc -l <losses1) found"
for w in 2 3 4; do
  cmp losses1 losses$w || die "losses of W=$w differ from W=1"
  [ "$(digest run1/latest)" = "$(digest run$w/latest)" ] || die "weights of W=$w differ from W=1"
done
# Negative control: summing on each rank before the fold must show.
SF_FAULT=engine.local_sum sf-train eagle3 -c run.toml --draft draft0 --from feats --ranks 2 -o broken >/dev/null 2>err
[ "$(digest run1/latest)" != "$(digest broken/latest)" ] || die "the fault switch engine.local_sum turned nothing red"

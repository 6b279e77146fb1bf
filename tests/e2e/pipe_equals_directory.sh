#!/usr/bin/env bash
# The same samples by pipe and by directory: losses and weights are equal bit for bit; --tee keeps what was streamed.
. "$(dirname "$0")/lib.sh"
tiny_setup
features -o feats >/dev/null 2>err || { cat err; die features; }
sf-train eagle3 -c run.toml --draft draft0 --from feats --ranks 2 -o bydir >/dev/null 2>err || { cat err; die directory; }
features 2>err | sf-train eagle3 -c run.toml --draft draft0 --from - --tee kept --ranks 2 -o bypipe >/dev/null 2>err2 || { cat err err2; die pipe; }
sf-train eagle3 -c run.toml --draft draft0 --from kept --ranks 2 -o bytee >/dev/null 2>err || { cat err; die tee; }
for run in bypipe bytee; do
  cmp <(losses bydir) <(losses $run) || die "losses of $run differ"
  [ "$(digest bydir/latest)" = "$(digest $run/latest)" ] || die "weights of $run differ"
done

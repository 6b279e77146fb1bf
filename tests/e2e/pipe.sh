#!/usr/bin/env bash
# What a run says of its pipe: a window over the cap is refused before anything is trained, the last window is settled as
# told, the line of the pipe adds up on both sides.
. "$(dirname "$0")/lib.sh"
tiny_setup
sed -i 's/epochs = 4/epochs = 1/' run.toml # 30 positions, windows of 12
train() { sf-train eagle3 -c run.toml --draft draft0 --from p.handle "$@"; }
expect 66 sf-train eagle3 -c run.toml --draft draft0 --from p.json --plan -o x
says 'no such directory or handle file (one that is to come is called NAME.handle)'
features --handle-file p.handle >/dev/null 2>cap.err &
for _ in $(seq 200); do [ -e p.handle ] && break; sleep 0.05; done
[ "$(stat -c %a p.handle)" = 600 ] || die "the handle's mode is $(stat -c %a p.handle)"
for how in --plan ''; do
  # shellcheck disable=SC2086  # one word or none
  expect 78 train $how --set stream.cap_mib=1 -o refused
  says 'one window takes up to 12 samples of 2048 tokens at a rank' 'stream.cap_mib is 1'
done
expect 78 train --plan --set stream.low_mib=9 --set stream.credit_mib=8 -o refused
expect 64 sf-train eagle3 -c run.toml --draft draft0 --from p.handle --from target --plan -o refused
expect 0 train --set training.last_window=drop --set stream.cap_mib=64 --set stream.report_s=0.05 --ranks 2 -o dropped
says 'the last 6 positions fill no window of 12 and are dropped' 'pipe of 1 of 2 ranks: asked' \
  'pipe: asked 24 = trained 24 + void 0 + in flight 0 + not yet answered 0' 'supply' 'demand'
wait
grep -q 'pipe: produced 24' cap.err || { cat cap.err; die "capture does not explain the pipe"; }
features -o feats >/dev/null 2>err || { cat err; die features; }
expect 0 sf-train eagle3 -c run.toml --draft draft0 --from feats -o padded
says 'the last window has 6 positions of 12: the others are padded with zero weight'

#!/usr/bin/env bash
# Every kind of draft and loss on a tiny target: equal bits for 1, 2 and 3 ranks, and for a run stopped half-way.
. "$(dirname "$0")/lib.sh"
tiny_setup tied=false

# same VERB DRAFT FEATURES OPTION...: 3 ranks, and 1 rank stopped and gone on with by 2, end in one rank's weights
same() {
  local verb=$1 draft=$2 from=$3 alone rest
  shift 3
  rest=(-c run.toml --draft "$draft" --from "$from" --set training.max_steps=2 "$@")
  rm -rf alone many parts
  sf-train "$verb" "${rest[@]}" -o alone >/dev/null 2>err || { cat err; die "$verb $*"; }
  alone=$(digest alone/latest)
  sf-train "$verb" "${rest[@]}" --ranks 3 -o many >/dev/null 2>err || { cat err; die "$verb $* on 3 ranks"; }
  [ "$(digest many/latest)" = "$alone" ] || die "$verb $*: weights of 3 ranks differ from one rank's"
  [ "$(losses many)" = "$(losses alone)" ] || die "$verb $*: losses of 3 ranks differ from one rank's"
  sf-train "$verb" "${rest[@]}" --set training.max_steps=1 --set training.total_steps=10 -o parts >/dev/null 2>err || { cat err; die "$verb $*: the first part"; }
  sf-train "$verb" "${rest[@]}" --set training.total_steps=10 --ranks 2 --resume auto -o parts >/dev/null 2>err || { cat err; die "$verb $*: the second part"; }
  [ "$(digest parts/latest)" = "$alone" ] || die "$verb $*: a stopped run ended in other weights"
}

features -o feats >/dev/null 2>err || { cat err; die features; }
same eagle3 draft0 feats --set training.lk_loss_type=lambda --set training.kl_decay=3

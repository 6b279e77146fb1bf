#!/usr/bin/env bash
# Two producers and two trainer ranks, killed at random: every run that ends has the weights of one never disturbed.
. "$(dirname "$0")/lib.sh"
tiny_setup
exec python3 "$here/kills.py" "$work" "${SF_KILLS:-30}" "${SF_SEED:-1}"

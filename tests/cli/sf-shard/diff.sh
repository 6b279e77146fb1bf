python3 "$SF_SOURCE"/tests/support/make_tiny_model.py a layers=1
python3 "$SF_SOURCE"/tests/support/make_tiny_model.py b layers=1 seed=2
sf-init model a -o target 2>/dev/null && sf-shard diff a target
echo $?
sf-shard diff a b | tail -n 1
sf-shard diff a b --format json | python3 -c 'import json, sys; print(json.load(sys.stdin)["first"])'
sf-shard diff a

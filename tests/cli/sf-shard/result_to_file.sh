# -o of a verb that prints: the same bytes, in a file.
python3 "$SF_SOURCE/tests/support/make_tiny_model.py" hf >/dev/null
sf-shard inspect hf >a && sf-shard inspect hf -o b && cmp a b && grep -q embed_tokens a && echo same

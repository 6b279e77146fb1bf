python3 "$SF_SOURCE/tests/support/make_tiny_model.py" model >/dev/null
sed -i '/"rms_norm_eps"/d; /"rope_theta"/d' model/config.json
sf-init model model -o out

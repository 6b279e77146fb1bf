python3 "$SF_SOURCE/tests/support/make_tiny_model.py" model >/dev/null
sed -i 's/Llama/Falcon/; s/"llama"/"falcon"/' model/config.json
sf-init model model -o out
rc=$?
ls
exit $rc

# The demo's settings are valid for every command that reads them.
demo=$SF_SOURCE/man/examples/demo/demo.toml
sf-train eagle3 -c "$demo" --print-config >/dev/null && sf-capture features -c "$demo" --print-config >/dev/null &&
  sf-capture regenerate -c "$demo" --print-config >/dev/null && sf-eval accept -c "$demo" --print-config >/dev/null &&
  echo valid

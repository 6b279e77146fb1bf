# The settings of the demo of rewards are valid for the verb that reads them, those of the long one on top.
demo=$SF_SOURCE/man/examples/demo-rl
sf-train grpo -c "$demo/rl.toml" --print-config >/dev/null && sf-train grpo -c "$demo/rl.toml" -c "$demo/long.toml" --print-config >/dev/null &&
  echo valid

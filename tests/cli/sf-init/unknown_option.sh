sf-init --no-such

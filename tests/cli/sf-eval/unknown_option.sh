sf-eval --no-such

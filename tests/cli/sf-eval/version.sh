sf-eval --version

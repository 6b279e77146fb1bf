sf-init --version

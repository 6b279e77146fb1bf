sf-capture --version

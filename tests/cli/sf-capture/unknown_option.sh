sf-capture --no-such

sf-capture inspect nowhere

sf-capture nonsense

sf-init nonsense

sf-eval nonsense

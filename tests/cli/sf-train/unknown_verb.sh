sf-train nonsense

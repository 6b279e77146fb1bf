sf-train grpo --target t --questions q -o r

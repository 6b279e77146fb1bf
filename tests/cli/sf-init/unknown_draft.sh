sf-init draft eagle --target t -o out

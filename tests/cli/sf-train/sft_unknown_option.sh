sf-train sft --target t --data d -o r --from f

sf-train sft --target t -o r

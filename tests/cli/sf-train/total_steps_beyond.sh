sf-train eagle3 --set training.total_steps=9007199254740993 --print-config

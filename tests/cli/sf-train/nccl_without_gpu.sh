sf-train sft --target none --data none.jsonl --set comm.group=nccl -o run

RANK=0 WORLD_SIZE=2 MASTER_ADDR=n1 sf-train eagle3 --draft d --from f -o r

RANK=0 WORLD_SIZE=4 sf-train eagle3 --draft d --from f -o r --ranks 2

RANK=0 sf-train eagle3 --draft d --from f -o r

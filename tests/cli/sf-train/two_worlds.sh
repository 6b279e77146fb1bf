RANK=0 WORLD_SIZE=2 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 sf-train eagle3 --draft d --from f -o r

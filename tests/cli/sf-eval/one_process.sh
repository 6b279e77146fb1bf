# A verb of one process started as several says so, instead of doing the work several times.
RANK=0 WORLD_SIZE=2 sf-eval report run

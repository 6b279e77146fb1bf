# No GPU to be seen, or no CUDA library at all: said before anything is read or made.
export CUDA_VISIBLE_DEVICES=
sf-train sft --target none --data none.jsonl --set engine.device=cuda -o run
status=$?
ls
exit $status

# A page and its curves from a metrics file with a half-written last line.
mkdir run
{
  echo '{"v":1,"event":"run","t":1,"rank":0,"step":0,"command":"sf-train"}'
  for step in 1 2 3; do
    echo "{\"v\":1,\"event\":\"step\",\"t\":$step,\"rank\":0,\"step\":$step,\"loss\":$((9 - step)).5}"
  done
  printf '{"v":1,"eve'
} >run/metrics.jsonl
sf-eval report run -o page.html && ls

mkdir run
printf 'no record\n' >run/metrics.jsonl
sf-eval report run -o page.html
rc=$?
ls
exit $rc

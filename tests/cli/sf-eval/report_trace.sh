# A step's timeline from the spans of two ranks: the last step that both have recorded.
mkdir run
for rank in 0 1; do
  for step in 2 100; do
    [ "$rank$step" = 1100 ] && continue
    head="{\"v\":1,\"event\":\"span\",\"t\":1,\"rank\":$rank,\"step\":$step"
    echo "$head,\"kind\":\"compute\",\"begin\":1.0,\"end\":1.$((rank + 5))}"
    echo "$head,\"kind\":\"reduce\",\"begin\":1.$((rank + 5)),\"end\":1.75,\"name\":\"fold x\",\"waited\":0.125,\"bytes\":64}"
  done >run/spans-$rank.jsonl
done
sf-eval report --trace run --format json
grep -c '<rect' run/trace.svg
grep -o 'Step 2: 750.00 ms on 2 ranks' run/trace.svg | sort -u
sf-eval report --trace run --step 3 -o other.svg; echo $?
sf-eval report run --step 2 -o other.html; echo $?
sf-eval report --trace run --step two; echo $?
ls

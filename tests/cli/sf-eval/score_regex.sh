# The last match of a pattern.
printf '{"id":1,"completion":"<a>4</a> <a>5</a>","gold":"5"}\n' >a.jsonl
sf-eval score -q a.jsonl --rule regex --pattern '(?<=<a>)[^<]*(?=</a>)'

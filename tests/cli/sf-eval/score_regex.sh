# A pattern takes its last match, of that its first group; an answer on which it gives up is no answer, alone.
printf '{"id":1,"gold":"x y","completion":"<a>u</a> then <a> x y </a>"}\n' >a.jsonl
sf-eval score -q a.jsonl --rule regex --pattern '(?<=<a>)[^<]*(?=</a>)'
sf-eval score -q a.jsonl --rule regex --pattern '<a>([^<]*)</a>' | grep pass@1
python3 -c 'print("{\"id\":2,\"gold\":\"5\",\"completion\":\"%s!\"}\n{\"id\":3,\"gold\":\"aa\",\"completion\":\"aa\"}" % ("a" * 40))' >>a.jsonl
sf-eval score -q a.jsonl --rule regex --pattern '^(a+)+$' -o v.jsonl | grep -v rule
tail -n +2 v.jsonl
sf-eval score -q a.jsonl --rule regex --pattern '(a'; echo "status $?"

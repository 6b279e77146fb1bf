# Labels, ids, golds and answers cannot command the terminal, nor pass for lines of a report.
label=$'\e[31mred\nstep 9  30/30'
printf '%s\n' '{"id":"a\u001b[2J\u0085","gold":5,"completion":"\u001b]0;x\u0007 \\boxed{6}\noutcome     correct (equal)"}' >a.jsonl
sf-eval score -q a.jsonl --label "$label" -o v.jsonl | grep -v rule
sf-eval report -q v.jsonl | tail -n 1
sf-eval report -q v.jsonl --format json | head -c 400 | grep -o '"reference":"[^"]*"'
sf-eval compare -q v.jsonl --against v.jsonl | cut -c 1-60
sf-eval score -q a.jsonl --explain $'a\e[2J\u0085'
sf-eval score -q a.jsonl --explain $'a\e[2J/9'; echo "status $?"
sf-eval report -q v.jsonl -o page.html >/dev/null && LC_ALL=C grep -c $'\e' page.html || true

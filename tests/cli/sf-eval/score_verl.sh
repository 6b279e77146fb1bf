# What verl reports of four answers to a question: the known means of [1, 0, 0, 0].
for i in 5 6 7 8; do echo "{\"id\":1,\"gold\":5,\"completion\":\"\\\\boxed{$i}\"}"; done >a.jsonl
sf-eval score -q a.jsonl --verl | grep verl
sf-eval score -q a.jsonl --verl --format json | grep -o '"verl":{[^}]*}'
head -n 1 a.jsonl >one.jsonl
sf-eval score -q one.jsonl --verl

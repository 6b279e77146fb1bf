# Sample files of lm-evaluation-harness and validation dumps of verl bring their questions.
printf '{"doc_id":0,"doc":{"Question":"q","Answer":"8"},"target":"8","resps":[["\\\\boxed{8}","\\\\boxed{9}"]],"filter":"none"}\n' >lm.jsonl
printf '{"input":"q<think>\\n","output":"8</think>\\\\boxed{8}","gts":"8","score":1.0,"step":140}\n' >verl.jsonl
sf-eval score -q lm.jsonl
sf-eval score -q verl.jsonl --rule verl-math-dapo --format json

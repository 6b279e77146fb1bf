# An id is a text or a whole number, a sample a whole number; a directory is no place for verdicts, said before the work.
try() { printf '%s\n' "$1" >a.jsonl; sf-eval score -q a.jsonl; echo "status $?"; }
try '{"id":1.5,"gold":"5","completion":"5"}'
try '{"id":{"a":1},"gold":"5","completion":"5"}'
try '{"id":1,"sample":"first","gold":"5","completion":"5"}'
try '{"id":1,"sample":-1,"gold":"5","completion":"5"}'
mkdir there
sf-eval score -q nowhere.jsonl -o there/; echo "status $?"
sf-eval score -q nowhere.jsonl -o absent/v.jsonl; echo "status $?"

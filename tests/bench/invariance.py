"""What row-invariance costs in decoding (run.py --part invariance).

Products of 1, 8 and 32 rows with the matrices of SmolLM2-135M: this project's, whose row i is the same however many rows there
are, against LibTorch's, whose is not; one thread, processor time, best of several. With --llama, the path of
llama-batched-bench, and --gguf-f32 or --gguf-bf16, files of the same weights, decoding itself beside llama.cpp's with the
same threads; without them that row is not run.
"""
import json
import os
import re
import statistics
import subprocess
import time

GOAL = 0.9
DECODED, PROMPT = 48, 64
BATCHES = (1, 8, 32)


def ours(a):
    """GFLOP/s by (rows, out, in, type), of the widest instruction set (printed last)."""
    text = subprocess.run([a.build / "tests/bench/kernels_bench"], check=True, capture_output=True, text=True).stdout
    found = {}
    for m, n, k, fp32, bf16 in re.findall(r"(\d+) x +(\d+) x +(\d+) +fp32 +([\d.]+) .*?bf16 +([\d.]+)", text):
        for dtype, speed in (("fp32", fp32), ("bf16", bf16)):
            found[int(m), int(n), int(k), dtype] = float(speed)
    return found


def theirs(m, n, k, dtype):
    import torch

    torch.set_num_threads(1)
    kind = torch.bfloat16 if dtype == "bf16" else torch.float32
    x, w = torch.full((m, k), 0.5, dtype=kind), torch.full((n, k), 0.25, dtype=kind)
    best = float("inf")
    for _ in range(8):
        start = time.thread_time()
        torch.nn.functional.linear(x, w)
        best = min(best, time.thread_time() - start)
    return 2e-9 * m * n * k / best


def products(a, rows_out):
    print("products of decoding, GFLOP/s of one thread")
    mine = ours(a)
    for (m, n, k, dtype), speed in sorted(mine.items()):
        if m not in BATCHES:
            continue
        peer = theirs(m, n, k, dtype)
        print(f"    {m:3} rows x [{n}, {k}] {dtype}   row-invariant {speed:7.1f}   torch {peer:7.1f}   ratio {speed / peer:5.2f}  (goal >= {GOAL})",
              flush=True)
        rows_out.append({"name": f"product {m} {n} {k} {dtype}", "ours": speed, "peer": peer, "ratio": speed / peer})


def generated(a, target, held, work, batch, dtype):
    """Tokens a second of sf-eval generate's decode steps, `batch` prompts at once: prompts and their first tokens apart, as
    llama-batched-bench counts them."""
    out = work / f"decoded{time.monotonic_ns()}.jsonl"
    done = subprocess.run([a.build / "bin/sf-eval", "generate", "--target", target, "--questions", held, "--limit", str(batch), "-o", out,
                           "--set", f"generate.batch={batch}", "--set", f"generate.max_new_tokens={DECODED}", "--set",
                           "generate.ignore_eos=true", "--set", f"target.compute_dtype={dtype}", "--format", "json"], check=True,
                          capture_output=True, text=True)
    found = json.loads(done.stdout)
    return (found["new_tokens"] - found["prompts"]) / found["decode_s"]


def llama(a, gguf, batch, prompt=PROMPT, decoded=DECODED):
    """What llama-batched-bench says of `batch` sequences: tokens a second of the prompts (speed_pp), of decoding (speed_tg)."""
    done = subprocess.run([a.llama, "-m", gguf, "-c", str(2 * batch * (prompt + decoded)), "-npp", str(prompt), "-ntg", str(decoded), "-npl",
                           str(batch), "-t", str(os.cpu_count()), "--output-format", "jsonl"], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")][-1]


def decoding(a, target, held, work, rows_out):
    for dtype, gguf in (("fp32", a.gguf_f32), ("bf16", a.gguf_bf16)):
        if not a.llama or not gguf:
            print(f"    decoding {dtype} beside llama.cpp: not run (--llama, --gguf-f32, --gguf-bf16)")
            continue
        for batch in BATCHES:
            mine, peers = [], []
            for _ in range(a.repeat):
                mine.append(generated(a, target, held, work, batch, dtype))
                peers.append(llama(a, gguf, batch)["speed_tg"])
            speed, peer = statistics.median(mine), statistics.median(peers)
            print(f"    decoding {dtype}, batch {batch:2}   ours {speed:7.1f}   llama.cpp {peer:7.1f} tokens/s   ratio {speed / peer:5.2f}  (goal >= 1)",
                  flush=True)
            rows_out.append({"name": f"llama {dtype} {batch}", "ours": mine, "peer": peers, "ratio": speed / peer})


def bench(a, target, held, work, rows_out):
    products(a, rows_out)
    decoding(a, target, held, work, rows_out)

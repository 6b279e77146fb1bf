#!/usr/bin/env python3
"""Checkpoints against cp and plain reads: sf-init model of 2 GiB, sf-shard verify, save and load,
opening a file of 10,000 tensors; steps of two ranks while a checkpoint is written.

checkpoints.py BUILD [GIB] [REPEAT]: runs alone; bench(a, work, rows) is called by run.py. Cold: the source's pages are
dropped with POSIX_FADV_DONTNEED before each run. Memory: what sf-init says of its own high-water mark.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAKE = ROOT / "tests/support/make_tiny_model.py"


def write_file(path, tensors):
    """BF16 tensors of pseudo-random bits (finite values), without a package."""
    header, at = {}, 0
    for name, shape in tensors.items():
        size = 2
        for extent in shape:
            size *= extent
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = random.Random(1)
    block = bytearray(rng.randbytes(1 << 20))
    block[1::2] = bytes(0x3C + (b & 3) for b in block[1::2])  # small exponents
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        left = at
        while left > 0:
            out.write(block[: min(left, len(block))])
            left -= len(block)
        out.flush()
        os.fsync(out.fileno())


def make_model(folder, gib):
    hidden, inner, layers, vocab = 2048, 5632, 4, 0
    subprocess.run([sys.executable, MAKE, folder, f"hidden={64}", "tied=false", "layers=1"], check=True)
    config = json.loads((folder / "config.json").read_text())
    vocab = config["vocab_size"]
    a_layer = 2 * hidden + 4 * hidden * hidden + 3 * hidden * inner
    layers = max(1, int(gib * 2**30 / 2 / a_layer))
    config.update(hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=16,
                  num_key_value_heads=16, head_dim=128, torch_dtype="bfloat16")
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {"model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden], "lm_head.weight": [vocab, hidden]}
    for i in range(layers):
        p = f"model.layers.{i}."
        tensors[p + "input_layernorm.weight"] = tensors[p + "post_attention_layernorm.weight"] = [hidden]
        for name in "qkvo":
            tensors[p + f"self_attn.{name}_proj.weight"] = [hidden, hidden]
        tensors[p + "mlp.gate_proj.weight"] = tensors[p + "mlp.up_proj.weight"] = [inner, hidden]
        tensors[p + "mlp.down_proj.weight"] = [hidden, inner]
    write_file(folder / "model.safetensors", tensors)


def drop_pages(path):
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def fill_pages(path):
    subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)


def timed(command, clean=None):
    """Seconds of a command that must succeed, and the MiB of peak memory that it names itself."""
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        sys.exit(f"{command}: status {done.returncode}\n{done.stderr}")
    if clean:
        shutil.rmtree(clean, ignore_errors=True)
    said = re.search(r"peak memory ([0-9.]+) MiB", done.stderr)
    return seconds, float(said[1]) if said else 0.0


def ratio(rows, name, ours, theirs, goal):
    value = statistics.median(theirs) / statistics.median(ours)
    rows.append({"name": name, "unit": "s", "ours": ours, "peer": theirs, "peer_name": "cp + sync", "ratio": value, "goal": goal})
    print(f"{name:34} ours {statistics.median(ours):7.2f} s  cp + sync {statistics.median(theirs):7.2f} s  speed ratio {value:5.2f}"
          f"  ({goal}; n = {len(ours)}, spread ours {min(ours):.2f}..{max(ours):.2f})", flush=True)


def bench_copy(rows, build, work, source, repeat):
    file, peak = source / "model.safetensors", 0
    for heat in ("warm", "cold"):
        mine, peers = [], []
        for turn in range(repeat + 1):
            drop_pages(file) if heat == "cold" else fill_pages(file)
            seconds, _ = timed(["sh", "-c", f"cp -r '{source}' '{work}/copy' && sync -f '{work}/copy/model.safetensors'"], work / "copy")
            drop_pages(file) if heat == "cold" else fill_pages(file)
            ours, memory = timed([build / "bin/sf-init", "model", source, "-o", work / "out"], work / "out")
            peak = max(peak, memory)
            if turn > 0:  # the first warms programs up
                mine.append(ours)
                peers.append(seconds)
        ratio(rows, f"sf-init model, {heat}", mine, peers, "goal >= 0.9; 1.0 with copy_file_range")
    print(f"{'sf-init model, memory above idle':34} {peak:.1f} MiB  (goal <= 64)")
    rows.append({"name": "sf-init model, memory above idle", "unit": "MiB", "ours": [peak], "goal": "<= 64 MiB"})


def bench_verify(rows, build, work, source, repeat):
    timed([build / "bin/sf-init", "model", source, "-o", work / "out"])
    size = (work / "out/model.safetensors").stat().st_size
    speeds = [size / 1e9 / timed([build / "bin/sf-shard", "verify", work / "out"])[0] for _ in range(repeat)]
    print(f"{'sf-shard verify, 1 core, warm':34} {statistics.median(speeds):.2f} GB/s  (goal >= 1.5; n = {repeat})")
    rows.append({"name": "sf-shard verify", "unit": "GB/s", "ours": speeds, "goal": ">= 1.5"})
    shutil.rmtree(work / "out")


def bench_files(rows, build, work, repeat):
    """Save and load beside plain files, and opening 10,000 tensors, inside one process."""
    done = subprocess.run([build / "tests/bench/checkpoint_bench", work, "512", str(max(repeat, 3))], check=True, capture_output=True)
    said = json.loads(done.stdout)
    for name, ours, theirs in (("save", "saved", "written"), ("load, warm", "loaded", "read")):
        value = statistics.median(said[theirs]) / statistics.median(said[ours])
        print(f"{name + ', 512 MiB':34} ours {statistics.median(said[ours]):.3f} s  plain {statistics.median(said[theirs]):.3f} s"
              f"  speed ratio {value:5.2f}  (goal >= 0.8; n = {len(said[ours])})")
        rows.append({"name": name, "unit": "s", "ours": said[ours], "peer": said[theirs], "peer_name": "plain file", "ratio": value,
                     "goal": ">= 0.8"})
    print(f"{'10,000 tensors opened':34} {statistics.median(said['opened']) * 1000:.1f} ms  (goal <= 5; n = {len(said['opened'])})")
    rows.append({"name": "10,000 tensors opened", "unit": "s", "ours": said["opened"], "goal": "<= 0.005"})


def bench_overlap(rows, build, work, gib=0.1, every=12, saves=3):
    """Steps of 2 ranks during which a checkpoint is written, beside those during which none is."""
    make_model(work / "small", gib)
    timed([build / "bin/sf-init", "model", work / "small", "-o", work / "target"])
    words = "the cat and dog in on an inner theory thunder runs over other then land sand".split()
    rng = random.Random(5)
    with open(work / "chats.jsonl", "w") as out:
        for i in range(2 * every * (saves + 1)):
            turns = [{"role": role, "content": " ".join(rng.choice(words) for _ in range(8))} for role in ("user", "assistant")]
            out.write(json.dumps({"id": str(i), "messages": turns}) + "\n")
    steps = every * saves + every // 2
    settings = {"batch_size": 1, "micro_batches": 2, "max_steps": steps, "checkpoint_every": every, "keep_checkpoints": saves + 2,
                "learning_rate": 1e-6}
    command = [build / "bin/sf-train", "sft", "--target", work / "target", "--data", work / "chats.jsonl", "--ranks", "2", "-o", work / "run"]
    timed(command + [f"--set=training.{key}={value}" for key, value in settings.items()])
    ended = {r["step"]: r["t"] for r in map(json.loads, open(work / "run/metrics.jsonl")) if "loss" in r}
    spans = [(ended[s], os.stat(work / f"run/step-{s}").st_ctime) for s in range(every, every * saves + 1, every)]
    during, between = [], []
    for step in range(3, steps + 1):
        begin, end = ended[step - 1], ended[step]
        (during if any(begin < b and a < end for a, b in spans) else between).append(end - begin)
    size = sum(f.stat().st_size for f in (work / f"run/step-{every}").iterdir())
    saved = statistics.median(b - a for a, b in spans)
    value = statistics.median(during) / statistics.median(between)
    print(f"{'steps while a checkpoint is written':34} {statistics.median(during):.3f} s (n = {len(during)}, most {max(during):.3f})  others"
          f" {statistics.median(between):.3f} s (n = {len(between)}, most {max(between):.3f})  ratio {value:.2f}  (goal <= 1.15);"
          f" {size / 2**30:.2f} GiB saved in {saved:.1f} s")
    rows.append({"name": "steps while a checkpoint is written, 2 ranks", "unit": "s", "ours": during, "peer": between,
                 "peer_name": "other steps", "ratio": value, "goal": "<= 1.15"})
    for folder in ("small", "target", "run"):
        shutil.rmtree(work / folder)


def bench(a, work, rows, gib=2):
    source = work / "hf"
    make_model(source, gib)
    print(f"checkpoint of {(source / 'model.safetensors').stat().st_size / 2**30:.2f} GiB in {work}; {os.cpu_count()} cores")
    bench_copy(rows, a.build, work, source, a.repeat)
    bench_verify(rows, a.build, work, source, a.repeat)
    bench_files(rows, a.build, work, a.repeat)
    shutil.rmtree(source)
    bench_overlap(rows, a.build, work)


if __name__ == "__main__":
    arguments = argparse.Namespace(build=pathlib.Path(sys.argv[1]).resolve(), repeat=int(sys.argv[3]) if len(sys.argv) > 3 else 5)
    with tempfile.TemporaryDirectory() as folder:
        bench(arguments, pathlib.Path(folder), [], float(sys.argv[2]) if len(sys.argv) > 2 else 2)

"""The reference's tables of backends and residencies, remade at a size of minutes (run.py --part tables).

Random features in the shape of a draft (sf-capture features --synthetic), 6 epochs, batch 2 x accumulation 4 on every
rank; the steady window is the last half of the steps. Every draft that the reference timed, and DFlash; each layout, each
residency of its tables, from files; and through the pipe, one capture and three trainers, on the demo's prompts. The
machine is what run.py says it is: one host, its processors shared by the ranks; the figures compare rows with each other,
not with devices.
"""
import json
import os
import statistics
import subprocess
import time

ALGORITHMS = ("eagle3", "dflash", "dflash2", "dspark")
RESIDENCIES = {"eagle3": ("replicate", "shard", "embed_tokens=rows", "embed_tokens=host"),
               "dflash": ("replicate", "shard", "rows+stream", "host"),  # one tied table
               "dflash2": ("replicate", "shard"), "dspark": ("replicate", "shard")}  # their heads are given it whole
BACKENDS = ("fsdp1", "fsdp2", "replicate")
EXTRA = {"eagle3": ["training.unroll=3"], **dict.fromkeys(ALGORITHMS[1:], ["training.num_anchors=8"])}


def train(a, algorithm, draft, source, run, ranks, settings, stdin=None):
    command = [a.build / "bin/sf-train", algorithm, "--draft", draft, "--from", source, "--ranks", str(ranks), "-o", run, "-q"]
    for setting in ["training.batch_size=2", f"training.micro_batches={4 * ranks}", "training.epochs=6", "engine.threads=1",
                    "training.log_every=1", *EXTRA[algorithm], *settings]:
        command += ["--set", setting]
    started = time.time()
    done = subprocess.run(command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wall = time.time() - started
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in open(run / "metrics.jsonl")]
    steps = [record for record in records if record["event"] == "step"]
    steady = steps[len(steps) // 2 :]
    middle = lambda key: statistics.median(record[key] for record in steady)  # noqa: E731
    subprocess.run(["rm", "-rf", run], check=True)
    return {"steps": len(steps), "step_ms": 1e3 * middle("perf/optimizer_step_time_s"), "wall_s": wall,
            "samples_per_s": middle("perf/global_samples_per_second"), "data_wait_ms": 1e3 * middle("perf/data_wait_time_s"),
            "peak_mib": max(record["memory_peak_measured"] for record in steps) / 2**20,
            "rest_mib": steps[-1]["memory_at_rest_measured"] / 2**20, "loss": steps[-1]["loss"]}


def show(name, row, first):
    delta = 100 * (row["step_ms"] / first["step_ms"] - 1)
    print(f"    {name:58} {row['step_ms']:8.0f} {delta:+6.1f} % {row['samples_per_s']:8.2f} {row['peak_mib']:8.0f} "
          f"{row['rest_mib']:8.0f} {row['wall_s']:8.1f} {row['data_wait_ms']:8.1f}", flush=True)


def head(title):
    print(f"  {title}\n    {'layout, tables':58} {'step ms':>8} {'delta':>8} {'rows/s':>8} {'peak':>8} {'at rest':>8} "
          f"{'wall s':>8} {'wait ms':>8}")


def make_drafts(a, target, chats, work):
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    eagle3 = ["--draft-vocab", "8192", "--data", chats]
    for algorithm in a.algorithms.split(","):
        subprocess.run([a.build / "bin/sf-init", "draft", algorithm, "--target", target, "-o", work / algorithm,
                        *(eagle3 if algorithm == "eagle3" else ["--set", "draft.hidden_layers=2", "--set", "draft.block_size=8"])],
                       **quiet)
        subprocess.run([a.build / "bin/sf-capture", "features", "--synthetic", work / algorithm, "--n", str(a.rows), "--set",
                        f"capture.max_length={a.length}", "-o", work / f"{algorithm}-features"], **quiet)


def offline(a, algorithm, work, rows_out):
    head(f"{algorithm}: from files, 4 ranks, {a.rows} rows of {a.length} tokens, 6 epochs")
    losses, first = set(), None
    for backend in BACKENDS:
        for tables in RESIDENCIES[algorithm]:
            row = train(a, algorithm, work / algorithm, work / f"{algorithm}-features", work / "run", 4,
                        [f"shard.backend={backend}", f"shard.frozen_tables={tables}"])
            first = first or row
            show(f"{backend}, {tables}", row, first)
            losses.add(row["loss"])
            rows_out.append({"name": f"tables {algorithm} {backend} {tables}", **row})
    print(f"    last losses: {len(losses)} different value{'s' if len(losses) > 1 else ''} ({row['steps']} steps)")


def piped(a, algorithm, target, chats, work, rows_out):
    head(f"{algorithm}: one capture, 3 trainers behind a pipe, {a.rows} chats of at most {a.length} tokens, 3 epochs")
    first = None
    for backend in BACKENDS:
        capture = subprocess.Popen([a.build / "bin/sf-capture", "features", "--target", target, "--draft", work / algorithm,
                                    "--data", chats, "-q", "--set", f"capture.max_length={a.length}"],
                                   stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})
        row = train(a, algorithm, work / algorithm, "-", work / "run", 3, [f"shard.backend={backend}", "training.epochs=3"],
                    stdin=capture.stdout)
        capture.stdout.close()
        assert capture.wait() == 0
        first = first or row
        show(backend, row, first)
        rows_out.append({"name": f"tables {algorithm} {backend} pipe", **row})


def write_chats(path, count):
    import random

    rng = random.Random(5)
    words = "the cat and dog in on an inner theory thunder runs over other then land sand".split()
    with open(path, "w", encoding="utf-8") as out:
        for i in range(count):
            say = lambda n: " ".join(rng.choice(words) for _ in range(n))  # noqa: E731
            out.write(json.dumps({"id": f"c{i}", "messages": [{"role": "user", "content": say(8)},
                                                              {"role": "assistant", "content": say(40)}]}) + "\n")


def bench(a, target, work, rows_out):
    print(f"reference tables on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; medians of the last half of the steps; MiB a rank")
    chats = work / "chats.jsonl"
    write_chats(chats, a.rows)
    make_drafts(a, target, chats, work)
    for algorithm in a.algorithms.split(","):
        offline(a, algorithm, work, rows_out)
        piped(a, algorithm, target, chats, work, rows_out)

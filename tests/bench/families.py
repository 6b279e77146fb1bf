"""Every family of drafts trained for the same wall time on the demo's target (run.py --part families).

The target answers the demo's prompts (bf16), the features of --chat-rows answers are captured once for the families that
read one form, and each draft then trains on two
ranks of one thread for --minutes and is then told to stop: a first run of a few steps says how long the schedule should be. Reading
features, starting and publishing count. Served acceptance is sf-eval accept's on held-out prompts, greedy, three tokens
proposed for each verification; a step's seconds are the median of the second half. Peak: of rank 0, in tensors. Then the
golden cases with the number that came nearest to its bound, and the exports as sf-shard inspect lists them.
"""
import json
import os
import pathlib
import signal
import statistics
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
DEMO = HERE.parents[1] / "man/examples/demo"
VOCABULARY = ("eagle3", "peagle")
FAMILIES = ("eagle3", "dflash", "dflash2", "dspark", "domino", "peagle")
FORMS = {"eagle3": "eagle3", "peagle": "eagle3", "dflash": "dflash", "dflash2": "dflash", "domino": "dflash", "dspark": "dspark"}
BLOCK = ["--set", "draft.hidden_layers=2", "--set", "draft.block_size=4"]
SETTINGS = {"eagle3": ["training.unroll=2"], "peagle": ["training.num_depths=4"]}
OWN = {"eagle3": ["--set", "draft.init=target", "--set", "draft.fc_norm=true"], "peagle": ["--set", "draft.hidden_layers=2"],
       "domino": [*BLOCK, "--set", "draft.gru_hidden_dim=256"]}
COMMON = ["training.micro_batches=4", "training.batch_size=1", "training.epochs=1000", "training.learning_rate=1.5e-3",
          "training.beta2=0.95", "training.weight_decay=0.05", "training.warmup_ratio=0.05", "engine.threads=1",
          "engine.compute_dtype=bf16"]
PROBE = 8  # steps that say how long one takes
SLACK = 1.2  # so that time, not the schedule's end, stops a run
QUIET = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def sets(settings):
    return [word for setting in settings for word in ("--set", setting)]


def prepare(a, family, target, chats, work):
    own = OWN.get(family, BLOCK)
    if family in VOCABULARY:
        own = [*own, "--draft-vocab", "8192", "--data", chats]
    draft, features = work / family, work / f"features-{FORMS[family]}"
    subprocess.run([a.build / "bin/sf-init", "draft", family, "--target", target, *own, "-o", draft], **QUIET)
    if not features.exists():
        subprocess.run([a.build / "bin/sf-capture", "features", "--target", target, "--draft", draft, "--data", chats, "--set",
                        "capture.max_length=320", "--set", "target.compute_dtype=bf16", "-o", features], **QUIET)
    return draft, features


def train(a, family, draft, features, run, steps, seconds=None):
    """The run's records; ended by TERM after `seconds`."""
    anchors = [] if family in VOCABULARY else ["training.num_anchors=64"]
    command = [a.build / "bin/sf-train", family, "--draft", draft, "--from", features, "--ranks", "2", "-o", run, "-q",
               *sets([*COMMON, *anchors, *SETTINGS.get(family, []), f"training.total_steps={steps}"])]
    started = time.time()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        child.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGTERM)
    errors = child.communicate()[1]
    assert child.returncode in (0, 75), errors
    records = [json.loads(line) for line in open(run / "metrics.jsonl")]
    return [r for r in records if r["event"] == "step"], records[-1], time.time() - started


def accept(a, target, draft, held, prompts):
    done = subprocess.run([a.build / "bin/sf-eval", "accept", "--target", target, "--draft", draft, "--prompts", held, "--limit",
                           str(prompts), "--set", "generate.max_new_tokens=48", "--format", "json"],
                          check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def one(a, family, target, chats, work):
    draft, features = prepare(a, family, target, chats, work)
    seconds = 60 * a.minutes
    steps, _, wall = train(a, family, draft, features, work / f"{family}-probe", PROBE)
    step = statistics.median(r["t"] - b["t"] for b, r in zip(steps, steps[1:]))
    start = wall - step * PROBE  # start and end of a run
    run = work / f"{family}-run"
    steps, end, wall = train(a, family, draft, features, run, max(PROBE, int(SLACK * (seconds - start) / step)), seconds)
    served = accept(a, target, run / "latest", DEMO / "held.jsonl", a.held)
    half = steps[len(steps) // 2:]
    # What the training's own window estimates, under its own name.
    named = ("acceptance_rate", "selector_accept_len", "accept_len", "acc")
    estimate = next(f"{name} {half[-1][name]:.3f}" for name in named if name in half[-1])
    found = subprocess.run([a.build / "bin/sf-shard", "inspect", run / "latest", "--format", "json"], check=True,
                          capture_output=True, text=True)
    tensors = json.loads(found.stdout)["tensors"]
    count = lambda shape: shape[0] * count(shape[1:]) if shape else 1  # noqa: E731
    row = {"family": family, "acceptance_length": served["acceptance_length"], "verifications": served["verifications"],
           "prompts": served["prompts"], "tokens_per_s_plain": served["tokens_per_s_plain"],
           "tokens_per_s_draft": served["tokens_per_s_draft"], "greedy_different": served["greedy_different"],
           "parameters": sum(count(t["shape"]) for name, t in tensors.items()
                             if ".exp_avg" not in name and name not in ("d2t", "t2d")),
           "steps": len(steps), "wall_s": wall, "step_s": statistics.median(b["t"] - c["t"] for c, b in zip(half, half[1:])),
           "peak_predicted": end["memory"][0]["peak_predicted"], "peak_measured": end["memory"][0]["peak_measured"],
           "estimate": estimate, "loss": half[-1]["loss"]}
    subprocess.run(["rm", "-rf", work / f"{family}-probe"], check=True)
    return row, run / "latest"


HEAD = (f"  {'family':8} {'served':>7} {'verifications':>13} {'prompts':>7} {'tokens/s':>9} {'plain':>6} {'gain':>6} {'parameters':>11} "
        f"{'steps':>6} {'step s':>7} {'wall s':>7} {'peak MiB':>9} {'planned':>8}  training's own estimate")


def show(r):
    print(f"  {r['family']:8} {r['acceptance_length']:7.3f} {r['verifications']:13} {r['prompts']:7} {r['tokens_per_s_draft']:9.1f} "
          f"{r['tokens_per_s_plain']:6.1f} {r['tokens_per_s_draft'] / r['tokens_per_s_plain']:6.2f} {r['parameters']:11,} "
          f"{r['steps']:6} {r['step_s']:7.3f} {r['wall_s']:7.1f} {r['peak_measured'] / 2**20:9.1f} {r['peak_predicted'] / 2**20:8.1f}"
          f"  {r['estimate']}", flush=True)


def golden(a):
    """Training steps of the reference, each with the number that came nearest to its bound."""
    print("golden parity: case, the largest error beside its bound")
    done = subprocess.run([a.build / "tests/golden/golden", HERE.parent / "golden"], capture_output=True, text=True)
    for line in done.stdout.splitlines():
        name = line.split()[1:2]
        if name and name[0].split("/")[0] in FAMILIES:
            print("  " + line)


def exports(a, target, latest, work):
    for family, draft in latest.items():
        for to in ("hf", "sglang", "vllm"):
            out = work / f"{family}-for-{to}"
            subprocess.run([a.build / "bin/sf-shard", "export", draft, "--target", target, "--to", to, "-o", out], **QUIET)
            text = subprocess.run([a.build / "bin/sf-shard", "inspect", out], check=True, capture_output=True, text=True).stdout
            with open(out / "config.json", encoding="utf-8") as file:
                architecture = json.load(file)["architectures"]
            tensors = next(line.split(None, 1)[1] for line in text.splitlines() if line.strip().startswith("tensors"))
            print(f"  {family:8} {to:7} {architecture[0]:24} {tensors}", flush=True)


def bench(a, target, work, rows_out):
    all_chats, chats = work / "all-chats.jsonl", work / "chats.jsonl"
    print(f"families: {a.minutes} minutes of training each, 2 ranks of 1 thread of {os.cpu_count()}, bf16, SmolLM2-135M; {a.held} held-out "
          "prompts of 48 tokens, 3 tokens proposed", flush=True)
    if a.chats:
        all_chats = a.chats
    else:
        subprocess.run([a.build / "bin/sf-capture", "regenerate", "--target", target, "--prompts", DEMO / "prompts.jsonl", "-o", all_chats,
                        *sets(["generate.max_new_tokens=72", "generate.batch=32", "target.compute_dtype=bf16"])], **QUIET)
    chats.write_text("".join(all_chats.read_text().splitlines(keepends=True)[: a.chat_rows]))
    print(HEAD, flush=True)
    latest = {}
    for family in a.families.split(","):
        row, latest[family] = one(a, family, target, chats, work)
        show(row)
        rows_out.append({"name": f"family {family}", **row})
    golden(a)
    print("exports, as sf-shard inspect lists them")
    exports(a, target, latest, work)

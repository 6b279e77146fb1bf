#!/usr/bin/env python3
# kills.py FOLDER KILLS SEED: what tests/e2e/lib.sh has set up in FOLDER is trained once from a directory, then from two
# producers while either side is killed (KILL) at random and started again, until so many have died. Each finished run
# must have the losses of every step once, and the weights, of the undisturbed one.
import hashlib, json, os, random, shutil, signal, subprocess, sys, time

work, kills, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.chdir(work)
rng = random.Random(seed)
common = ["-c", "run.toml", "--set", "training.epochs=8", "--set", "training.checkpoint_every=1"]
quick = ["--set", "stream.heartbeat_s=0.2", "--set", "stream.rejoin_deadline_s=60"]


def result(run):
    losses = [(r["step"], repr(r["loss"]), repr(r["grad_norm"])) for r in map(json.loads, open(f"{run}/metrics.jsonl")) if "loss" in r]
    weights = hashlib.sha256(open(f"{run}/latest/model.safetensors", "rb").read()).hexdigest()
    return losses, weights


def start(log, *command):
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=open(log, "a"))


def fail(why):
    for log in ("p0.log", "p1.log", "train.log"):
        if os.path.exists(log):
            sys.stderr.write(f"--- {log}\n" + "".join(open(log).readlines()[-25:]))
    sys.exit(f"FAILED: seed {seed}, after {sum(killed.values())} kills: {why}")


def producer(i):
    return start(f"p{i}.log", "sf-capture", "features", "-c", "run.toml", *quick, "--target", "target", "--draft", "draft0",
                 "--data", "chats.jsonl", "--handle-file", f"p{i}.handle", "--rejected", f"void{i}")


def trainer(run):
    return start("train.log", "sf-train", "eagle3", *common, *quick, "--draft", "draft0", "--from", "p0.handle", "--from", "p1.handle",
                 "--ranks", "2", "--resume", "auto", "-o", run)


def wait_for_end(pids):
    end = time.monotonic() + 5
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < end:
        time.sleep(0.01)


def ranks_of(pid):
    try:
        return [int(child) for child in open(f"/proc/{pid}/task/{pid}/children").read().split()]
    except OSError:
        return []


def published(run):
    try:
        return os.readlink(f"{run}/latest")
    except OSError:
        return None


killed = {"producer": 0, "trainer": 0, "rank": 0}
features = ["sf-capture", "features", "-c", "run.toml", "--target", "target", "--draft", "draft0", "--data", "chats.jsonl", "-o", "feats"]
for command in (features, ["sf-train", "eagle3", *common, "--draft", "draft0", "--from", "feats", "--ranks", "2", "-o", "calm"]):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"FAILED: {command[0]} ended with {done.returncode}: {done.stderr}")
wanted = result("calm")

sides, runs, started = [producer(0), producer(1)], 0, time.monotonic()
while sum(killed.values()) < kills:
    run = f"run{runs}"
    training, ranks, next_kill = trainer(run), [], time.monotonic() + rng.uniform(0.3, 1.2)
    reached, patience = None, 1.0  # kills come closer together while the run gets on, further apart while it does not
    while True:
        time.sleep(0.02)
        for i, side in enumerate(sides):
            status = side.poll()
            if status is None:
                continue
            if status not in (0, 69, -signal.SIGKILL):
                fail(f"producer {i} ended with {status}")
            sides[i] = producer(i)
        ranks = ranks_of(training.pid) or ranks
        status = training.poll()
        if status == 0:
            break
        if status is not None:
            if status not in (69, 75, 137, -signal.SIGKILL):
                fail(f"the trainer ended with {status}")
            wait_for_end(ranks)  # they hold the run's directory
            training, ranks = trainer(run), []
        if time.monotonic() < next_kill or sum(killed.values()) >= kills:
            continue
        patience = max(1.0, patience / 2) if published(run) != reached else min(32.0, 1.5 * patience)
        reached = published(run)
        next_kill = time.monotonic() + patience * rng.uniform(0.1, 1.0)
        what = rng.choice(["producer", "producer", "trainer", "rank"])
        victims = {"producer": [side.pid for side in sides], "trainer": [training.pid], "rank": ranks}[what]
        if victims:
            os.kill(rng.choice(victims), signal.SIGKILL)
            killed[what] += 1
        if time.monotonic() - started > 5 * kills + 120:
            fail("the runs do not come to an end")
    if result(run) != wanted:
        fail(f"{run} is not the undisturbed run: {len(result(run)[0])} steps of {len(wanted[0])}, weights {result(run)[1][:12]} for {wanted[1][:12]}")
    shutil.rmtree(run)
    runs += 1
for side in sides:
    side.terminate()
for side in sides:
    side.wait()
lines = [line.strip() for line in open("train.log") if "pipe:" in line]
print(f"{sum(killed.values())} killed ({killed['producer']} producers, {killed['trainer']} trainers, {killed['rank']} ranks) in "
      f"{time.monotonic() - started:.0f} s, seed {seed}: {runs} runs ended, each with the losses and weights of the undisturbed one")
print(lines[-1] if lines else "no line explains the pipe")
if not lines:
    sys.exit(1)

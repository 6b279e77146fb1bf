"""Scoring: answers a second of each rule on the golden rows against math-verify in the same run, and the report of a
million answers. Processor time on one core, so that a busy machine does not decide."""
import json
import os
import pathlib
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASE = ROOT / "tests/golden/math_score/rows/case.json"
RULES = ("aime-v1", "math", "exact", "gsm8k", "lm-eval-aime", "verl-math-dapo", "verl-math-reward", "verl-prime-math")
GOALS = {"aime-v1": 100_000, "math": 10_000}


def peer_speed(rows):
    """Answers a second of math-verify as its documentation calls it."""
    from math_verify import parse, verify
    start = time.process_time()
    for row in rows:
        verify(parse(f"${row['gold']}$"), parse(row["response"]))
    return len(rows) / (time.process_time() - start)


def our_speed(build, rule):
    done = subprocess.run([build / "tests/bench/score_bench", CASE, rule], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["answers_per_s"]


def verdicts(path, answers, per_question=16):
    header = {"kind": "scores", "v": 1, "rule": "aime-v1", "rule_version": 1, "rule_digest": "0" * 64, "questions_digest": "0" * 64,
              "step": 0, "answers": answers}
    with open(path, "w") as out:
        out.write(json.dumps(header, separators=(",", ":")) + "\n")
        for i in range(answers):
            word = "correct" if i * 7919 % 100 < 60 else "wrong"
            out.write(f'{{"id":"q{i // per_question}","sample":{i % per_question},"outcome":"{word}","span":[900,903],"normal":"{i % 1000}",'
                      f'"reason":"{"equal" if word == "correct" else "differs"}","tokens":{500 + i % 4000}}}\n')


def bench_report(rows, a, work, answers=1_000_000):
    file = work / "verdicts.jsonl"
    verdicts(file, answers)
    seconds, peak = [], 0
    for _ in range(min(3, a.repeat)):
        child = subprocess.Popen([a.build / "bin/sf-eval", "report", "-q", file, "-o", work / "page.html"], stdout=subprocess.DEVNULL)
        usage = os.wait4(child.pid, 0)[2]
        child.returncode = 0
        seconds.append(usage.ru_utime + usage.ru_stime)
        peak = max(peak, usage.ru_maxrss * 1024)
    rows.append({"name": f"report of {answers} answers", "unit": "s", "ours": seconds, "peak_bytes": peak, "goal": "< 5 s, < 500 MB"})
    print(f"report of {answers:,} answers: {statistics.median(seconds):.2f} s of processor time, {peak / 1e6:.0f} MB at the peak (goal < 5 s, < 500 MB)", flush=True)


def bench(a, rows, work):
    golden = json.loads(CASE.read_text())["rows"]
    peers = [peer_speed(golden) for _ in range(a.repeat)]
    peer = statistics.median(peers)
    print(f"math-verify: {peer:.0f} answers/s (n = {len(peers)}, {min(peers):.0f}..{max(peers):.0f}), {len(golden)} golden rows, one core")
    for rule in RULES:
        mine = [our_speed(a.build, rule) for _ in range(a.repeat)]
        speed = statistics.median(mine)
        goal = f"goal >= {GOALS[rule]}" + (" and 50 x" if rule == "math" else "") if rule in GOALS else ""
        rows.append({"name": f"score {rule}", "unit": "answers/s", "ours": mine, "peer": peers, "peer_name": "math-verify", "ratio": speed / peer, "goal": goal})
        print(f"score {rule:20} {speed:12,.0f} answers/s  {speed / peer:9,.0f} x math-verify  (n = {len(mine)}, {min(mine):,.0f}..{max(mine):,.0f}; {goal})", flush=True)
    bench_report(rows, a, work)

#!/usr/bin/env python3
"""Negative controls: every fault switch of the sources is listed, and turns its listed test red.

usage: run_switches.py BUILD        switches.txt: NAME  TEST-BINARY  GTEST-FILTER
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

TRIES = 4  # tests that kill at random instants do not meet every window each time; without the switch none may fail
ROOT = pathlib.Path(__file__).resolve().parents[2]


def listed():
    rows = {}
    for line in (ROOT / "tests/fault/switches.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, binary, test = line.split()
            rows[name] = (binary, test)
    return rows


def in_sources():
    names = set()
    for folder in ("libcore", "bin", "kernels"):
        for path in (ROOT / folder).rglob("*.[hc]*"):
            names |= set(re.findall(r'\bfault\("([a-z_.0-9]+)"\)', path.read_text()))
    return names


def status(build, binary, test, fault):
    env = {**os.environ, "SF_GOLDEN_ROOT": str(ROOT / "tests/golden")}
    env.pop("SF_FAULT", None)
    if fault:
        env["SF_FAULT"] = fault
    try:
        path = next(build / "tests" / room / binary for room in ("unit", "multi") if (build / "tests" / room / binary).exists())
        done = subprocess.run([path, f"--gtest_filter={test}"], env=env, capture_output=True,
                              text=True, timeout=100)
    except subprocess.TimeoutExpired:
        return "timeout"
    if "0 tests from 0 test suites" in done.stdout:
        return "no such test"
    return "green" if done.returncode == 0 else "red"


def verdict(build, name, binary, test):
    plain = status(build, binary, test, None)
    if plain != "green":
        return f"{name}: {binary} {test} is {plain} without the switch"
    for _ in range(TRIES):
        broken = status(build, binary, test, name)
        if broken in ("red", "timeout"):
            return None
    return f"{name}: {binary} {test} stays {broken} in {TRIES} tries"


def main(build):
    rows, used = listed(), in_sources()
    faults = [f"{name}: in the sources, but not in tests/fault/switches.txt" for name in sorted(used - set(rows))]
    faults += [f"{name}: listed, but nowhere in the sources" for name in sorted(set(rows) - used)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(verdict, build, name, *row) for name, row in rows.items()]
        faults += [job.result() for job in jobs if job.result()]
    print("\n".join(faults) if faults else f"faults: {len(rows)} switches, each turns its test red")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))

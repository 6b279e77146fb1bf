#!/usr/bin/env python3
"""The demo's prompts: split by hash, disjoint, enough, varied."""
import collections
import hashlib
import json
import pathlib
import sys

DEMO = pathlib.Path(__file__).resolve().parents[2] / "man/examples/demo"


def rows(name):
    return [json.loads(line) for line in (DEMO / name).read_text().splitlines()]


def text(row):
    return row["messages"][-1]["content"]


def is_held(row):
    return int(hashlib.sha256(text(row).encode()).hexdigest(), 16) % 11 == 0


def main():
    train, held = rows("prompts.jsonl"), rows("held.jsonl")
    faults = []
    if len(train) + len(held) < 500 or len(held) < 48:
        faults.append(f"{len(train)} + {len(held)} prompts; 500 with 48 held wanted")
    faults += [f"{row['id']} is in the wrong file" for row in train if is_held(row)]
    faults += [f"{row['id']} is in the wrong file" for row in held if not is_held(row)]
    counts = collections.Counter(text(row) for row in train + held)
    faults += [f"twice: {prompt}" for prompt, count in counts.items() if count > 1]
    openings = collections.Counter(" ".join(text(row).split()[:4]) for row in train + held)
    faults += [f"{count} prompts open with \"{words}\"" for words, count in openings.items() if count > 8]
    print("\n".join(faults) if faults else f"demo prompts: {len(train)} train, {len(held)} held")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Puts before.json, after.json and stages.tsv of the current directory into summary.json and says what came out."""
import json
import pathlib
import sys


def main(wall_s):
    before = json.loads(pathlib.Path("before.json").read_text())
    after = json.loads(pathlib.Path("after.json").read_text())
    rows = [line.split("\t") for line in pathlib.Path("stages.tsv").read_text().splitlines()]
    summary = {
        "acceptance_before": before["acceptance_length"],
        "acceptance_after": after["acceptance_length"],
        "held_prompts": after["prompts"],
        "greedy_equal": before["greedy_equal"] and after["greedy_equal"],
        "greedy_ties": before["greedy_ties"] + after["greedy_ties"],
        "tokens_per_s_plain": after["tokens_per_s_plain"],
        "tokens_per_s_draft": after["tokens_per_s_draft"],
        "wall_s": wall_s,
        "stages": [{"name": name, "budget_s": int(budget), "wall_s": int(took)} for name, budget, took in rows],
    }
    pathlib.Path("summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(f"\nacceptance length {summary['acceptance_before']:.3f} -> {summary['acceptance_after']:.3f} "
          f"on {summary['held_prompts']} held-out prompts, in {wall_s} s")
    print(f"greedy output equal: {summary['greedy_equal']} ({summary['greedy_ties']} ties)")
    print("picture: demo/report.html   numbers: demo/summary.json")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))

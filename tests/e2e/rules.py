#!/usr/bin/env python3
"""All rules side by side, through sf-eval score and sf-eval report: the table of fifty hard answers, cell by cell as
published, and the agreement of all rules over the golden rows.

usage: rules.py BIN        BIN: folder of the commands. Ends with 1 where a published verdict is not reproduced.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
PUBLISHED = {"aime-v1": "right", "lm-eval-aime": "lm-eval-aime", "verl-math-reward": "verl-math-reward",
             "verl-math-dapo": "verl-math-dapo", "verl-math-dapo-old": "verl-math-dapo-old"}
RULES = [*PUBLISHED, "verl-prime-math", "math", "gsm8k", "exact", "regex"]
SHORT = {"aime-v1": "aime", "lm-eval-aime": "LM", "verl-math-reward": "HR", "verl-math-dapo": "D2",
         "verl-math-dapo-old": "D1", "verl-prime-math": "PM", "math": "math", "gsm8k": "gsm", "exact": "exact", "regex": "regex"}
OPTIONS = {"regex": ["--pattern", "-?[0-9]+"]}


def rows_of(case):
    return json.loads((GOLDEN / case / "case.json").read_text())["rows"]


def judge(sf_eval, rows, work, rules):
    """Verdicts of each rule, kept in `work`/verdicts; {rule: [correct?]}."""
    with open(work / "questions", "w") as questions, open(work / "answers", "w") as answers:
        for i, row in enumerate(rows):
            questions.write(json.dumps({"id": f"r{i}", "problem": f"row {i}", "answer": row["gold"]}) + "\n")
            answers.write(json.dumps({"id": f"r{i}", "sample": 0, "completion": row["response"]}) + "\n")
    (work / "verdicts").mkdir()
    verdicts = {}
    for rule in rules:
        out = work / "verdicts" / f"{rule}.jsonl"
        done = subprocess.run([sf_eval, "score", work / "answers", "--questions", work / "questions", "--rule", rule,
                               *OPTIONS.get(rule, []), "-o", out], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        verdicts[rule] = [json.loads(line)["outcome"] == "correct" for line in out.read_text().splitlines()[1:]]
    return verdicts


def table(rows, verdicts):
    """Prints it; the cells that are not as published."""
    print("row  " + " ".join(f"{SHORT[rule]:>5}" for rule in RULES) + "  gold      why      (! differs from the right verdict)")
    bad = []
    for i, row in enumerate(rows):
        cells = []
        for rule in RULES:
            mine = verdicts[rule][i]
            cells.append(("yes" if mine else "no") + ("" if mine == row["right"] else "!"))
            if rule in PUBLISHED and mine != row[PUBLISHED[rule]]:
                bad.append((row["row"], rule))
        print(f"{row['row']:>3}  " + " ".join(f"{cell:>5}" for cell in cells) + f"  {row['gold'][:8]:<8}  {row['why']}")
    wrong = {rule: sum(mine != row["right"] for mine, row in zip(verdicts[rule], rows)) for rule in RULES}
    print("wrong" + " ".join(f"{wrong[rule]:>5}" for rule in RULES) + f"  of {len(rows)}")
    return bad, wrong


def agreement(sf_eval, work, title):
    done = subprocess.run([sf_eval, "report", work / "verdicts", "-q"], check=True, capture_output=True, text=True)
    print(f"\n{title}\n" + done.stdout[done.stdout.index("agreement"):], end="")


def main():
    sf_eval = pathlib.Path(sys.argv[1]) / "sf-eval"
    with tempfile.TemporaryDirectory() as folder:
        sets = {name: pathlib.Path(folder) / name for name in ("fifty", "integers", "all")}
        for path in sets.values():
            path.mkdir()
        fifty, golden = rows_of("score/aime_table"), rows_of("math_score/rows")
        bad, wrong = table(fifty, judge(sf_eval, fifty, sets["fifty"], RULES))
        agreement(sf_eval, sets["fifty"], f"The {len(fifty)} rows above:")
        integers = [row for row in golden if row["gold"].isdigit() and int(row["gold"]) < 1000]
        judge(sf_eval, integers, sets["integers"], RULES)
        agreement(sf_eval, sets["integers"], f"The {len(integers)} golden rows whose gold is an integer of 0 to 999:")
        judge(sf_eval, golden, sets["all"], [rule for rule in RULES if rule not in ("aime-v1", "gsm8k")])
        agreement(sf_eval, sets["all"], f"All {len(golden)} golden rows (aime-v1 and gsm8k refuse some of the golds):")
    if [wrong[rule] for rule in PUBLISHED] != [0, 24, 26, 28, 34] or bad:
        print(f"not as published: {bad}, {wrong}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

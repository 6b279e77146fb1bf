#!/usr/bin/env python3
"""The questions of ./dev demo-rl: their answers are right, and no sum that is held out is trained on."""
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "man/examples/demo-rl"))
sys.dont_write_bytecode = True
import questions  # noqa: E402


def main():
    rng = random.Random(1)
    train, held = (questions.questions(side, count, rng) for side, count in ((False, 2000), (True, 210)))
    faults = [f"{row['id']}: {asked} is not {row['answer']}" for row, asked in train + held
              if eval(asked) != int(row["answer"])]
    faults += [f"{asked} is trained on and held out" for asked in {asked for _, asked in train} & {asked for _, asked in held}]
    texts = [row["question"] for row, _ in train + held]
    faults += [f"{len(texts) - len(set(texts))} questions twice"] * (len(texts) != len(set(texts)))
    faults += ["fewer than 200 held out"] * (len(held) < 200)
    print("\n".join(faults) if faults else f"questions of demo-rl: {len(train)} train, {len(held)} held out")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Arithmetic questions with one whole number as their answer: train.jsonl and held.jsonl in the current directory.

    questions.py [--train N] [--held N] [--seed S]

The sum that a question asks for, not its wording, decides where it goes: a sum that is held out occurs in no training
question, however told. Numbers that may be exchanged count as one sum (3 + 4 is 4 + 3).
"""
import argparse
import hashlib
import json
import random

THINGS = "apples books coins stickers marbles pencils shells cards".split()
NAMES = "Tom Mia Ben Ada Leo Eva Sam Zoe".split()


def total(values):
    return "+".join(str(value) for value in sorted(values))


def sum_of_two(rng):
    a, b = rng.randint(2, 20), rng.randint(2, 20)
    return total([a, b]), f"What is {a} + {b}?", a + b


def sum_of_three(rng):
    a, b, c = (rng.randint(1, 8) for _ in range(3))
    return total([a, b, c]), f"What is {a} + {b} + {c}?", a + b + c


def difference(rng):
    a, b = sorted((rng.randint(2, 20), rng.randint(2, 20)), reverse=True)
    return f"{a}-{b}", f"What is {a} - {b}?", a - b


def sum_and_difference(rng):
    a, b = rng.randint(2, 9), rng.randint(2, 9)
    c = rng.randint(1, min(6, a + b - 1))
    return f"{total([a, b])}-{c}", f"What is {a} + {b} - {c}?", a + b - c


def product(rng):
    a, b = rng.randint(2, 20), rng.randint(2, 10)
    return f"{min(a, b)}*{max(a, b)}", rng.choice([f"What is {a} times {b}?", f"What is {a} * {b}?"]), a * b


def story_of_one_step(rng):
    name, things = rng.choice(NAMES), rng.choice(THINGS)
    a, b = sorted((rng.randint(3, 15), rng.randint(2, 10)), reverse=True)
    if rng.random() < 0.5:
        return total([a, b]), f"{name} has {a} {things} and buys {b} more. How many {things} does {name} have now?", a + b
    return f"{a}-{b}", f"{name} has {a} {things} and gives away {b}. How many {things} does {name} have left?", a - b


def story_of_two_steps(rng):
    name, things = rng.choice(NAMES), rng.choice(THINGS)
    if rng.random() < 0.5:
        a, b = rng.randint(3, 10), rng.randint(2, 8)
        c = rng.randint(2, min(6, a + b - 1))
        return (f"{total([a, b])}-{c}", f"{name} has {a} {things}, buys {b} more and then gives away {c}. "
                f"How many {things} does {name} have now?", a + b - c)
    a, b, c = rng.randint(2, 5), rng.randint(2, 5), rng.randint(1, 6)
    return (f"{min(a, b)}*{max(a, b)}+{c}", f"{name} has {a} boxes with {b} {things} each and {c} more {things}. "
            f"How many {things} does {name} have?", a * b + c)


KINDS = {"sum-2": sum_of_two, "sum-3": sum_of_three, "difference-2": difference, "difference-3": sum_and_difference,
         "product": product, "story-1": story_of_one_step, "story-2": story_of_two_steps}


# Of twelve questions, how many are of each kind: most ask for one step of arithmetic.
OF_TWELVE = {"sum-2": 2, "sum-3": 1, "difference-2": 2, "difference-3": 1, "product": 2, "story-1": 3, "story-2": 1}


def is_held(asked):
    return int(hashlib.sha256(asked.encode()).hexdigest(), 16) % 5 == 0


def questions(held, count, rng):
    """Rows, kinds as often as OF_TWELVE says while there are enough of them, each with the sum that it asks for."""
    seen, rows, kinds = set(), [], [kind for kind, count in OF_TWELVE.items() for _ in range(count)]
    while len(rows) < count:
        kind = kinds[len(rows) % len(kinds)]
        for _ in range(10000):
            asked, text, answer = KINDS[kind](rng)
            if is_held(asked) == held and text not in seen:
                break
        else:  # there are no more of this kind
            kinds = [other for other in kinds if other != kind]
            continue
        seen.add(text)
        rows.append(({"id": f"{kind}-{len(rows)}", "question": text, "answer": str(answer)}, asked))
    rng.shuffle(rows)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=int, default=2000)
    parser.add_argument("--held", type=int, default=210)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    for path, held, count in (("train.jsonl", False, args.train), ("held.jsonl", True, args.held)):
        with open(path, "w") as out:
            out.writelines(json.dumps(row) + "\n" for row, _ in questions(held, count, rng))


if __name__ == "__main__":
    main()

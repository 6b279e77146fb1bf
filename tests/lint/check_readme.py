#!/usr/bin/env python3
"""Every test that tests/README.md names exists, under this name, in tests/."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def names_in_sources():
    names = set()
    for path in (ROOT / "tests").rglob("*_test.cpp"):
        for suite, name in re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", path.read_text(), re.M):
            names.add(f"{suite}.{name}")
    return names


def main():
    known = names_in_sources()
    text = (ROOT / "tests/README.md").read_text()
    named = [name for row in text.splitlines() if row.startswith("|") for name in re.findall(r"\b[A-Z]\w+\.[A-Z]\w{7,}", row)]
    lost = sorted(set(named) - known)
    for name in lost:
        print(f"tests/README.md names {name}, which no test is called")
    print(f"{len(set(named))} tests named, {len(lost)} of them unknown")
    return 1 if lost or not named else 0


if __name__ == "__main__":
    sys.exit(main())

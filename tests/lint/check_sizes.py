#!/usr/bin/env python3
"""Size budget: a file over 600 lines (tests 1,000), a header over 300 or a main.cpp over 150 is a design question."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXEMPT = {}  # path -> reason (tables)


def limit(name):
    if name.startswith("tests/"):
        return 1000
    if name.endswith("main.cpp"):
        return 150
    return 300 if name.endswith(".h") else 600


def main():
    found = []
    count = 0
    for folder in ("libcore", "bin", "kernels", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".h", ".cpp", ".cu", ".py", ".sh"):
                continue
            name = path.relative_to(ROOT).as_posix()
            lines = len(path.read_text().splitlines())
            count += 1
            if lines > limit(name) and name not in EXEMPT:
                found.append(f"{name}: {lines} lines, {limit(name)} allowed")
    print("\n".join(found) if found else f"sizes: {count} files within budget")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

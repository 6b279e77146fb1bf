#!/usr/bin/env python3
"""Runs the command-line cases of a folder: run.py BINDIR FOLDER

A case is x.sh beside what it must give: x.stdout, x.stderr (absent: nothing), x.exit (absent: 0). In an expected file
a `*` stands for any text within a line, and a line `...` for any number of lines. With SF_ACCEPT=1 a case that differs
is rewritten and the test reports SKIP (77), never a pass.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TIMEOUT_S = 60


def line_matches(pattern, line):
    return re.fullmatch(".*".join(re.escape(part) for part in pattern.split("*")), line) is not None


def matches(patterns, lines):
    if not patterns:
        return not lines
    if patterns[0] == "...":
        return any(matches(patterns[1:], lines[skip:]) for skip in range(len(lines) + 1))
    return bool(lines) and line_matches(patterns[0], lines[0]) and matches(patterns[1:], lines[1:])


def expected(case, kind):
    path = case.with_suffix("." + kind)
    return path.read_text() if path.exists() else ("0\n" if kind == "exit" else "")


def run(case, bindir):
    keep = {"HOME": "/nonexistent", "LC_ALL": "C.UTF-8", "TERM": "dumb"}
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LD_LIBRARY_PATH"):
        if name in os.environ:
            keep[name] = os.environ[name]
    with tempfile.TemporaryDirectory(prefix="sf-cli-") as folder:
        keep.update(PATH=f"{bindir}:/usr/local/bin:/usr/bin:/bin", TMPDIR=folder, SF_SOURCE=str(case.parents[3]))
        done = subprocess.run(["bash", "-u", str(case)], cwd=folder, env=keep, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=TIMEOUT_S, check=False)
    return {"stdout": done.stdout.decode(errors="replace"), "stderr": done.stderr.decode(errors="replace"),
            "exit": f"{done.returncode}\n"}


def differences(case, found):
    return [kind for kind, text in found.items()
            if not matches(expected(case, kind).splitlines(), text.splitlines())]


def accept(case, found, kinds):
    for kind in kinds:
        path = case.with_suffix("." + kind)
        if found[kind] == ("0\n" if kind == "exit" else ""):
            path.unlink(missing_ok=True)
        else:
            path.write_text(found[kind])


def main(bindir, folder):
    cases = sorted(pathlib.Path(folder).resolve().glob("*.sh"))
    if not cases:
        print(f"{folder}: no cases")
        return 1
    failed = accepted = 0
    for case in cases:
        found = run(case, bindir)
        kinds = differences(case, found)
        if kinds and os.environ.get("SF_ACCEPT") == "1":
            accept(case, found, kinds)
            accepted += 1
            continue
        print(f"{'not ok' if kinds else 'ok'} {case.name}")
        for kind in kinds:
            print(f"  {kind}, wanted:\n{expected(case, kind)}  found:\n{found[kind]}")
        failed += bool(kinds)
    print(f"{len(cases)} cases, {failed} failed, {accepted} accepted")
    return 77 if accepted else 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))

#!/usr/bin/env python3
"""Each header compiles alone. check_headers.py BUILDDIR [--all]

Compiled with the flags of a source of the same room, without what that target reads beforehand (through ccache where the
build uses it). Those that a .cpp of its room includes first are nearly proved by the build; they are compiled with --all.
What a target reads beforehand (pch) the build compiles as it is.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBCORE = ROOT / "libcore"


def first_includes():
    """Headers that some source includes first."""
    proved = set()
    for source in LIBCORE.rglob("*.cpp"):
        first = re.search(r'^#include ["<]([^">]+)[">]', source.read_text(), re.M)
        if first:
            proved.add(first.group(1))
    return proved


def flags_by_room(build):
    flags = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if source.suffix == ".cpp" and source.is_relative_to(LIBCORE) and source.parent != LIBCORE:
            flags.setdefault(source.relative_to(LIBCORE).parts[0], shlex.split(entry["command"]))
    return flags


def compile_alone(build, header, command):
    folder = build / "lint-headers"
    folder.mkdir(exist_ok=True)
    stem = header.replace("/", "-")
    source = folder / f"{stem}.cpp"
    text = f'#include "{header}"\n'
    if not source.exists() or source.read_text() != text:
        source.write_text(text)
    words, skip = [], False
    for word in command:
        if skip:
            skip = False
        elif word in ("-o", "-MQ", "-MF", "-c", "-include"):
            skip = True
        elif not word.startswith(("-MD", "-O", "-fpch-preprocess")):
            words.append(word)
    done = subprocess.run([*words, "-O0", "-o", folder / f"{stem}.o", "-c", source], cwd=build, capture_output=True,
                          text=True, check=False)
    return "" if done.returncode == 0 else f"libcore/{header} does not compile alone:\n{done.stderr[:2000]}"


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    proved = set() if "--all" in sys.argv[2:] else first_includes()
    flags = flags_by_room(build)
    headers = [path.relative_to(LIBCORE).as_posix() for path in sorted(LIBCORE.rglob("*.h"))]
    alone = [header for header in headers if header not in proved and header.split("/")[0] in flags]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [text for text in pool.map(lambda h: compile_alone(build, h, flags[h.split("/")[0]]), alone) if text]
    print("\n".join(found) if found else
          f"headers: {len(headers) - len(alone)} left to their source, {len(alone)} compiled alone")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Refuses an include that a room's row in libcore/LAYERS does not allow, and system headers out of their room."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PRIVATE = {  # header prefix -> the files that may include it
    "nlohmann/": r"libcore/base/json\.cpp$",
    "boost/": r"libcore/app/",
    "toml++": r"libcore/config/",
    "zmq": r"libcore/stream/",
    "pcre2": r"libcore/text/",
    "utf8proc": r"libcore/text/",
    "xxhash": r"libcore/base/hash\.cpp$",
    "openssl/": r"libcore/base/hash\.cpp$",
    "ATen/": r"libcore/(tensor|ops|comm|model|engine|data|train|gen|run)/",
    "c10/": r"libcore/(tensor|ops|comm|model|engine|data|train|gen|run)/",
    "torch/": r"libcore/(tensor|ops|comm|model|engine|data|train|gen|run)/",
}


def rows():
    allowed = {}
    for line in (ROOT / "libcore/LAYERS").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if line.startswith("#") or len(cells) < 5:
            continue
        allowed[cells[0]] = set(cells[3].split()) | {cells[0]}
    return allowed


def faults(path, room, allowed):
    text = path.read_text()
    name = path.relative_to(ROOT).as_posix()
    for number, line in enumerate(text.splitlines(), 1):
        ours = re.match(r'\s*#include "([a-z_0-9]+)/', line)
        if ours and ours.group(1) in allowed and ours.group(1) not in allowed[room]:
            yield f"{name}:{number}: room {room} may not include room {ours.group(1)} (libcore/LAYERS)"
        theirs = re.match(r"\s*#include <([^>]+)>", line)
        for prefix, where in PRIVATE.items():
            if theirs and theirs.group(1).startswith(prefix) and not re.match(where, name):
                yield f"{name}:{number}: <{theirs.group(1)}> belongs to {where}"
    if "getenv(" in text and room != "app" and name != "libcore/base/fault.cpp":
        yield f"{name}: getenv outside room app"


def main():
    allowed = rows()
    found = []
    for room in allowed:
        for path in sorted((ROOT / "libcore" / room).rglob("*.[hc]*")):
            if path.suffix in (".h", ".cpp"):
                found += faults(path, room, allowed)
    for path in sorted((ROOT / "kernels").rglob("*")):
        if path.suffix in (".h", ".cpp", ".cu"):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if re.match(r'\s*#include "(?!sf_kernels/)', line) and "/" in line:
                    found.append(f"{path.relative_to(ROOT)}:{number}: kernels include nobody")
    print("\n".join(found) if found else f"layers: {len(allowed)} rooms keep to their rows")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

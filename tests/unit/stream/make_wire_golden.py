#!/usr/bin/env python3
"""Writes wire_v1.bin and wire_v1.json: the wire as its description in frame.h says, by other hands than frame.cpp.

Needs the package xxhash. The stored files are what the tests read; they change only with the wire version.
"""
import json
import pathlib
import struct

import xxhash

HERE = pathlib.Path(__file__).parent
VERSION = 1
HELLO, WELCOME, ALIVE, BYE, ASK, SAMPLE, CHUNK = 1, 2, 4, 5, 9, 10, 11


def frame(kind, position, index, payload):
    head = struct.pack("<4sHHQIIQ", b"SFSW", VERSION, kind, position, index, len(payload), xxhash.xxh3_64_intdigest(payload))
    return head + struct.pack("<Q", xxhash.xxh3_64_intdigest(head)) + payload


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def ask(now, want, landed):
    return struct.pack("<3I", len(now), len(want), len(landed)) + b"".join(struct.pack("<Q", p) for p in now + want + landed)


def main():
    ids = struct.pack("<3i", 1, -2, 49151)
    state = struct.pack("<4H", 0x3F80, 0x4000, 0xBF80, 0x0000)
    header = {"row": 7, "tensors": [{"name": "input_ids", "dtype": "I32", "shape": [3]}, {"name": "final_norm", "dtype": "BF16", "shape": [2, 2]}]}
    frames = [
        ("sample", SAMPLE, 12, 2, compact(header)),
        ("chunk 0", CHUNK, 12, 0, ids),
        ("chunk 1", CHUNK, 12, 1, state),
        ("void sample", SAMPLE, 13, 0, compact({"row": 4, "void": "no supervised token", "tensors": []})),
        ("ask", ASK, 0, 0, ask([12], [13, 14, 2**40], [9])),
        ("alive", ALIVE, 0, 0, b"{}"),
        ("bye", BYE, 0, 0, b"{}"),
    ]
    (HERE / "wire_v1.bin").write_bytes(b"".join(frame(*item[1:]) for item in frames))
    shown = [{"name": n, "kind": k, "position": p, "index": i, "payload": d.hex()} for n, k, p, i, d in frames]
    (HERE / "wire_v1.json").write_text(json.dumps({"wire": VERSION, "frames": shown}, indent=1) + "\n")


if __name__ == "__main__":
    main()

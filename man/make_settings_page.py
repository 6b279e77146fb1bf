#!/usr/bin/env python3
"""Writes shardforge.toml(5) from the schema: sf-train --help --format json | make_settings_page.py"""
import json
import sys

HEAD = r""".\" SPDX-License-Identifier: Apache-2.0
.\" Made by man/make_settings_page.py from the schema; do not edit.
.Dd November 29, 2026
.Dt SHARDFORGE.TOML 5
.Os ShardForge
.Sh NAME
.Nm shardforge.toml
.Nd settings of the sf commands
.Sh DESCRIPTION
Settings are TOML files, named with
.Fl c ,
of sections with keys.
Later wins: defaults, the files in their order,
.Fl Fl set ,
options that set a key.
One file may serve several commands: keys that a verb does not read are checked
and otherwise left alone.
.Pp
An unknown key ends with 64 and a suggestion, a value of the wrong type or out
of range with 78; both name file, line and column.
A key that is given but used by nothing in a run is an error too (78).
A file's key that this run has no use for is named in a warning; given with
.Fl Fl set
or an option that sets it, it ends the run with 78.
With
.Fl Fl set
a key that the verb does not read is refused (64): it speaks to one verb, a file
to several.
.Fl Fl print-config
shows every value with its origin.
"""

TAIL = r""".Sh EXAMPLES
.Bd -literal -offset indent
[training]
learning_rate = 1e-3
unroll = 3

[capture]
max_length = 512
.Ed
.Sh SEE ALSO
.Xr sf-capture 1 ,
.Xr sf-eval 1 ,
.Xr sf-init 1 ,
.Xr sf-shard 1 ,
.Xr sf-train 1 ,
.Xr shardforge 7
"""


def number(value):
    if value == int(value) and abs(value) < 1e16:
        return str(int(value))
    return repr(value)


def escaped(text):
    text = text.replace("\\", r"\e")
    return r"\&" + text if text[:1] in (".", "'") else text


def type_text(key):
    text = key["type"]
    if key["choices"]:
        text = "one of " + ", ".join(key["choices"])
    low, high = key["min"], key["max"]
    if low is not None and high is not None and high < 1e16:
        text += f", {number(low)} to {number(high)}"
    elif low is not None:
        text += f", from {number(low)}"
    return text


def main():
    text = HEAD
    section = None
    for key in json.load(sys.stdin)["keys"]:
        now, _, leaf = key["name"].partition(".")
        if now != section:
            text += (".El\n" if section else "") + f".Sh [{now}]\n.Bl -tag -width Ds\n"
            section = now
        default = json.dumps(key["default"])
        text += f".It Va {leaf}\n{escaped(key['help'][:1].upper() + key['help'][1:])}.\n"
        text += f"Type: {type_text(key)}.\nDefault: {escaped(default)}.\n"
    sys.stdout.write(text + ".El\n" + TAIL)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""A family of drafts is its own files and one line in each table: nothing else names it.

The families are those of arch/drafts.cpp. A file names one by its quoted name or by including one of its headers. It may do
so if it is the family's own (its name is in the file's), or a table of TABLES; what a further family is built on (dflash's
blocks, eagle3's samples) may be named by those files of BASES too. Comments do not count.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLES = {  # file: what its line says of a family
    "libcore/arch/drafts.cpp": "config, parameters, segments",
    "libcore/gen/drafter.cpp": "how it is decoded",
    "libcore/run/train_draft.h": "how it is trained",
    "libcore/tool/draft_settings.h": "its settings",
    "libcore/tool/draft_settings.cpp": "its settings, for plans and runs",
    "libcore/tool/init_blocks.cpp": "a new draft on blocks",
    "libcore/tool/init_draft.h": "a new draft with a vocabulary of its own",
    "libcore/tool/init_draft.cpp": "a new draft with a vocabulary of its own",
    "libcore/tool/plan_request.cpp": "its activations",
    "libcore/plan/work.h": "its activations",
    "libcore/config/schema.cpp": "plan.algorithm, and its keys",
    "bin/sf-train/options.cpp": "its verb",
}
BASES = {
    "dflash": ["libcore/arch/block_spec.h", "libcore/arch/drafts.h", "libcore/gen/draft_blocks.h", "libcore/model/block_backbone.h",
               "libcore/plan/wrap.cpp", "libcore/run/block_algorithm.h", "libcore/tool/init_blocks.h", "libcore/train/slots.h"],
    # Names of the forms of samples, of classes to wrap and of tensors that others publish.
    "eagle3": ["libcore/arch/drafts.h", "libcore/plan/wrap.cpp", "libcore/run/vocabulary_algorithm.h",
               "libcore/tool/import_model.cpp", "libcore/tool/synthetic.cpp"],
}


def families():
    text = (ROOT / "libcore/arch/drafts.cpp").read_text()
    return re.findall(r'(?:with_vocabulary|on_blocks)<[^>]*>\("([a-z0-9]+)"', text)


def code_of(path):
    return re.sub(r"//[^\n]*", "", path.read_text())


def faults_of(names):
    found = []
    for folder in ("libcore", "bin"):
        for path in sorted((ROOT / folder).rglob("*.[hc]*")):
            place = str(path.relative_to(ROOT))
            if place in TABLES or path.suffix not in (".h", ".cpp"):
                continue
            parts = re.split(r"[_.]", path.name)
            code = code_of(path)
            for name in names:
                own = name in parts or place in BASES.get(name, [])
                # Another family's own file may be built on a base.
                own = own or (name in BASES and any(other in parts for other in names))
                if not own and re.search(rf'"{name}"|#include "[a-z]+/{name}\.h"', code):
                    found.append(f"{place} names the {name} family: a line in one of its tables would do ({', '.join(TABLES)})")
    return found


def main():
    names = families()
    faults = [] if len(names) >= 6 else [f"libcore/arch/drafts.cpp: found the families {names} alone"]
    faults += faults_of(names)
    faults += [f"{place}: allowed to name families, but is not there" for place in TABLES if not (ROOT / place).exists()]
    print("\n".join(faults) if faults else f"families: {len(names)}, each in its own files and {len(TABLES)} tables")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

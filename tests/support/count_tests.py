#!/usr/bin/env python3
"""Counts single test cases in Meson's JUnit log and prints the closing line: N passed, N failed[, N skipped]."""
import sys
import xml.etree.ElementTree as tree


def main(path):
    passed = failed = skipped = 0
    for case in tree.parse(path).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed += 1
        elif "skipped" in kinds:
            skipped += 1
        else:
            passed += 1
    tail = f", {skipped} skipped" if skipped else ""
    print(f"{passed} passed, {failed} failed{tail}")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

#!/usr/bin/env python3
"""docs/programs-of-pytorch.md lists the ops of interop/import/program/aten_ops.c. --update writes the list."""
import re
import sys

MARK = "<!-- from aten_ops.c -->\n"
DOC, TABLE = "docs/programs-of-pytorch.md", "interop/import/program/aten_ops.c"


def table():
    with open(TABLE) as f:
        rows = re.findall(r'^    \{"([^"]+)", \w+, dtp_lower_(\w+), (?:NULL|"([^"]+)")\},$', f.read(), re.M)
    by = {}
    for name, family, ours in rows:
        by.setdefault(family, []).append(f"`{name}`" if ours in ("", name, "slice") else f"`{name}` ({ours})")
    return "| family | ops |\n|---|---|\n" + "".join(
        f"| {family.replace('_', ' ')} | {', '.join(sorted(names))} |\n" for family, names in sorted(by.items()))


def main():
    with open(DOC) as f:
        head, _, old = f.read().partition(MARK)
    if sys.argv[1:] == ["--update"]:
        with open(DOC, "w") as f:
            f.write(head + MARK + table())
    elif old != table():
        sys.exit(f"{DOC}: not the ops of {TABLE}: python3 tests/lint/aten_ops.py --update")


main()

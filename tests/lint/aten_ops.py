#!/usr/bin/env python3
"""docs/programs-of-pytorch.md lists the ops of the tables in interop/import/program. --update writes the list."""
import re
import sys
import textwrap

MARK = "<!-- from aten_ops.c -->\n"
DOC, TABLE = "docs/programs-of-pytorch.md", "interop/import/program/aten_ops.c"
SEVERAL = ("formulas", "interop/import/program/aten_formulas.c"), ("views", "interop/import/program/aten_rewrites.c")


def table():
    with open(TABLE) as f:
        rows = re.findall(r'^    \{"([^"]+)", \w+, dtp_lower_(\w+), (?:NULL|"([^"]+)")\},$', f.read(), re.M)
    by = {}
    for name, family, ours in rows:
        ours = ours.split(" ")[0]  # without attributes
        by.setdefault(family, []).append(f"`{name}`" if ours in ("", name, "slice") else f"`{name}` ({ours})")
    known = {name for name, _, _ in rows}
    for what, path in SEVERAL:  # ops that are written as those
        with open(path) as f:
            text = f.read().split("Ops of several operands")[0]
        names = re.findall(r'\{"([a-z]\w+)", (?:NULL,|"\w+",\s*"|[a-z]\w+\}|"aten\.\w+", "aten)', text)
        by["as others: " + what] = [f"`{name}`" for name in set(names) - known]
    lines = ["| family | ops |", "|---|---|"]
    for family, names in sorted(by.items()):  # a row is at most 120 columns wide
        head = f"| {family.replace('_', ' ')} | "
        lines += [head + row + " |" for row in textwrap.fill(", ".join(sorted(names)), 118 - len(head)).splitlines()]
    return "\n".join(lines) + "\n"


def main():
    with open(DOC) as f:
        head, _, old = f.read().partition(MARK)
    if sys.argv[1:] == ["--update"]:
        with open(DOC, "w") as f:
            f.write(head + MARK + table())
    elif old != table():
        sys.exit(f"{DOC}: not the ops of {TABLE}: python3 tests/lint/aten_ops.py --update")


main()

#!/usr/bin/env python3
"""docs/programs-of-pytorch.md lists the ops of the tables in importers: aten_ops.c, with those that are written as
others, and onnx_ops.c. --update writes both lists."""
import re
import sys
import textwrap

DOC = "docs/programs-of-pytorch.md"
SEVERAL = ("formulas", "importers/program/rewrites/aten_formulas.c"), ("views", "importers/program/rewrites/aten_rewrites.c")


def table(by):
    """by: names of ops by family; a row of the table is at most 120 columns wide."""
    lines = ["| family | ops |", "|---|---|"]
    for family, names in sorted(by.items()):
        head = f"| {family.replace('_', ' ')} | "
        lines += [head + row + " |" for row in textwrap.fill(", ".join(sorted(names)), 118 - len(head)).splitlines()]
    return "\n".join(lines) + "\n"


def by_family(rows):
    """rows: (family, op, what it becomes)."""
    by = {}
    for family, name, ours in rows:
        by.setdefault(family, []).append(f"`{name}`" if ours in ("", name.lower()) else f"`{name}` ({ours})")
    return by


def read(path):
    with open(path) as f:
        return f.read()


def aten():
    rows = re.findall(r'^    OP\("([^"]+)", \w+, (\w+), (?:NULL|"([^"]+)"),',
                      read("importers/program/lowering/aten_ops.c"), re.M)
    by = by_family((family, name, ours.split(" ")[0].replace("slice", ""))  # without attributes
                   for name, family, ours in rows)
    known = {name for name, _, _ in rows}
    for what, path in SEVERAL:
        names = re.findall(r'(?:FORMULA|REWRITE)\("(\w+)",', read(path))
        by["as others: " + what] = [f"`{name}`" for name in set(names) - known]
    return table(by)


def onnx():
    text = read("importers/onnx/onnx_ops.c")
    rows = [("elements", *row) for row in re.findall(r'(?:UNARY|BINARY)\("(\w+)", "(\w+)"\)', text)]
    rows += [("truth", *row) for row in re.findall(r'TRUTH\("(\w+)", "(\w+)"\)', text)]
    rows += [(family, name, to) for name, family, to in
             re.findall(r'(?:OWN|ROW)\("(\w+)", (\w+), \d, \w+,\s+"(\w+)\.', text)]
    return table(by_family(rows))


def main():
    text = read(DOC)
    for source, make in (("aten_ops.c", aten), ("onnx_ops.c", onnx)):
        mark = f"<!-- from {source} -->\n"
        head, _, rest = text.partition(mark)
        old, heading, more = rest.partition("\n## ")
        if sys.argv[1:] == ["--update"]:
            text = head + mark + make() + heading + more
        elif old != make():
            sys.exit(f"{DOC}: not the ops of {source}: python3 tests/lint/aten_ops.py --update")
    if sys.argv[1:] == ["--update"]:
        with open(DOC, "w") as f:
            f.write(text)


main()

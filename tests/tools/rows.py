#!/usr/bin/env python3
"""The rows of tests/dtensor/compat_torch.json, and docs/compat-torch.md, whose tables are those rows.

--update writes the tables.

Every row is there once. Its tests exist: `program:case`, the program is registered and holds the case. A row without a
test says what it waits for; three may. In our own mode no row has more collectives (its cell says equal or lower), and a
third of the rows run on MPI.
Usage: rows.py BUILD_DIR [--update]
"""
import json
import os
import re
import subprocess
import sys
import textwrap

DATA, PAGE = "tests/dtensor/compat_torch.json", "docs/compat-torch.md"
BEGIN, END = "<!-- from the rows -->", "<!-- end -->"
OTHER_VALUES = {"N17", "N18"}  # other values or refused, not counts
failed = []


def fail(text):
    failed.append(text)
    print("FAIL: " + text)


def tables(sections):
    lines = []
    for section in sections:
        lines += ["## " + section["section"], "", "| row | what | torch mode | own mode |", "|---|---|---|---|"]
        lines += ["| %s | %s | %s | %s |" % (r["row"], r["what"], r["torch"], r["own"]) for r in section["rows"]]
        notes = {}
        for r in section["rows"]:
            if "note" in r:
                notes.setdefault(r["note"], []).append(r["row"])
        wrapped = [textwrap.fill("- %s: %s" % (" ".join(ids), note), 120, subsequent_indent="  ", break_on_hyphens=False)
                   for note, ids in notes.items()]
        lines += [""] + (wrapped + [""] if wrapped else [])
    return "\n".join(lines)


def check_tests(build, row, registered):
    for test in row.get("tests", []):
        program, case = test.split(":")
        binary = "%s/bin/test_%s" % (build, program)
        if not os.path.exists(binary):
            binary = re.sub("_[0-9]$", "", binary)
        if program not in registered:
            fail("%s: no test '%s'" % (row["row"], program))
        elif case.encode() not in open(binary, "rb").read():
            fail("%s: '%s' has no case '%s'" % (row["row"], program, case))
    if "tests" not in row and "waits for " not in row["torch"]:
        fail("%s: no test" % row["row"])
    if "mpi" in row and any("_mpi_" in name for name in registered) and row["mpi"] not in registered:
        fail("%s: no test '%s'" % (row["row"], row["mpi"]))


def main():
    build = sys.argv[1]
    with open(DATA, encoding="utf-8") as f:
        sections = json.load(f)
    listed = subprocess.run(["ctest", "--test-dir", build, "-N"], capture_output=True, text=True, check=True).stdout
    registered = set(re.findall(r"Test +#\d+: (\S+)", listed))
    rows = [row for section in sections for row in section["rows"]]
    if len({row["row"] for row in rows}) < len(rows):
        fail("a row is there twice")
    for row in rows:
        check_tests(build, row, registered)
        own = row["torch"] if row["own"] == "as in torch mode" else row["own"]
        if not re.match("equal|lower|not used$|as T10$|as N3$|waits for ", own) and row["row"] not in OTHER_VALUES:
            fail("%s: in our own mode '%s'" % (row["row"], own))
    if 3 * sum("mpi" in row for row in rows) < len(rows):
        fail("less than a third of the rows run on MPI")
    if sum("waits for " in row["own"] for row in rows) > 3:
        fail("more than three rows wait for an op")
    with open(PAGE, encoding="utf-8") as f:
        page = f.read()
    start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    if "--update" in sys.argv:
        with open(PAGE, "w", encoding="utf-8") as f:
            f.write(page[:start] + "\n\n" + tables(sections) + page[end:])
    elif page[start:end].strip() != tables(sections).strip():
        fail("the tables of %s are not the rows: rows.py BUILD_DIR --update" % PAGE)
    print("%d rows, %d failed" % (len(rows), len(failed)))
    return 1 if failed else 0


sys.exit(main())

#!/usr/bin/env python3
"""Functions of the product: none above 80 lines, and how many statics are called in one place only, which may not rise.

A static that is called once should be a concept of its own; a share of at most SHARE may be so. One that a table or an
argument names, and nothing calls, has to be a function. -v lists the statics that are called once, the longest lists
first.
Usage: functions.py [-v] [FOLDER...]"""
import re
import subprocess
import sys

MOST_LINES = 80
SHARE = 0.45
ROOMS = ["core", "spmd", "interop", "importers", "cost_models", "planner", "executor", "dtensor", "tools"]


def functions(text):
    """(name, static, lines) of every definition: clang-format puts a function's braces alone in column 0."""
    lines = text.split("\n")
    for i, line in enumerate(lines):
        if line != "{" or i == 0:
            continue
        start = i - 1
        while start > 0 and lines[start - 1] and not lines[start - 1].startswith(("}", "#", " *", "/*")) \
                and not lines[start - 1].endswith((";", "*/")):
            start -= 1
        head = " ".join(lines[start:i])
        name = re.search(r"\b(\w+)\(", head)
        if not name or "=" in head.split("(")[0]:
            continue
        end = lines.index("}", i) if "}" in lines[i:] else i
        end = i + lines[i:].index("}") if "}" in lines[i:] else end
        yield name.group(1), head.startswith("static"), end - start + 1


def main():
    verbose = "-v" in sys.argv
    rooms = [a for a in sys.argv[1:] if a != "-v"] or ROOMS
    files = subprocess.check_output(["git", "ls-files", "--cached", "--others", "--exclude-standard", "--"] +
                                    [f"{r}/*.c" for r in rooms], text=True).split()
    sizes, statics, once, bad, listed = [], 0, 0, 0, []
    for file in files:
        with open(file, encoding="utf-8") as f:
            text = f.read()
        code = re.sub(r"/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\\n])'", " ", text, flags=re.S)
        here = []
        for name, static, n in functions(text):
            sizes.append(n)
            if n > MOST_LINES:
                print(f"{file}: {name}: {n} lines, the limit is {MOST_LINES}")
                bad += 1
            if static:
                statics += 1
                uses = re.findall(rf"\b{name}\b", code)
                prototypes = len(re.findall(rf"^static[^;{{}}]*\b{name}\([^;{{}}]*\)[^;{{}}]*;", code, flags=re.M))
                calls = re.findall(rf"\b{name}\s*\(", code)
                # the definition and one call
                if len(uses) - prototypes == 2 and len(calls) - prototypes == 2:
                    once += 1
                    here.append(name)
        if here:
            listed.append((len(here), file, here))
    if verbose:
        for _, file, names in sorted(listed, reverse=True):
            print(f"{file}: {' '.join(names)}")
    sizes.sort()
    share = once / statics if statics else 0
    print(f"{len(sizes)} functions: median {sizes[len(sizes) // 2]} lines, p90 {sizes[len(sizes) * 9 // 10]}, "
          f"longest {sizes[-1]}; {statics} statics, {once} called once ({100 * share:.0f} %)")
    return 1 if bad or (rooms == ROOMS and share > SHARE) else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""No circle of folders and no circle of files in the product.

Files: a.c depends on b.c when its object takes a name that b.o defines. Folders: the same, and includes of headers.
Modules, a.c with a.h: both, in the folders of LAYERED, whose files are layers: none includes the header of one above it.
lower_node.c and lower_decompose.c are the one true recursion: a node's decomposition is lowered as nodes are.
Usage: circles.py BUILD_DIR"""
import os
import re
import subprocess
import sys
from collections import defaultdict

RECURSION = {"spmd/lower/lower_decompose.c", "spmd/lower/lower_node.c"}
LAYERED = {"core/layout", "executor/comm", "executor/run", "executor/files", "planner/mtf"}
ROOMS = ["core", "spmd", "interop", "importers", "cost_models", "planner", "executor", "dtensor", "tools"]


def components(edges):
    """Strongly connected components of more than one node (Tarjan)."""
    sys.setrecursionlimit(20000)
    index, low, stack, on, found = {}, {}, [], set(), []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        on.add(v)
        for w in sorted(edges.get(v, ())):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in on:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            part = []
            while not part or part[-1] != v:
                part.append(stack.pop())
                on.discard(part[-1])
            if len(part) > 1:
                found.append(set(part))

    for v in sorted(edges):
        if v not in index:
            visit(v)
    return found


def main():
    build = sys.argv[1]
    listed = subprocess.check_output(["git", "ls-files", "--cached", "--others", "--exclude-standard", "--"] + ROOMS,
                                     text=True).split()
    sources = {f for f in listed if f.endswith((".c", ".h")) and os.path.exists(f)}
    defined, wanted = {}, defaultdict(set)
    for folder, _, names in os.walk(build):
        for name in names:
            match = re.fullmatch(re.escape(build) + r"/(.*)/CMakeFiles/[^/]*\.dir/(.*)\.o", os.path.join(folder, name))
            source = match and match.group(1) + "/" + match.group(2)
            if source not in sources:
                continue
            for line in subprocess.check_output(["nm", os.path.join(folder, name)], text=True).splitlines():
                kind, symbol = line.split()[-2:]
                if kind == "U":
                    wanted[source].add(symbol)
                elif kind in "TDBRC":
                    defined[symbol] = source
    files, folders, modules = defaultdict(set), defaultdict(set), defaultdict(set)
    for source, symbols in wanted.items():
        files[source] |= {defined[s] for s in symbols if s in defined} - {source}
    for source in sources:
        with open(source, encoding="utf-8") as f:
            included = re.findall(r'^#include "([^"]+)"', f.read(), flags=re.M)
        for target in files.get(source, set()) | {i for i in included if i in sources}:
            if os.path.dirname(target) != os.path.dirname(source):
                folders[os.path.dirname(source)].add(os.path.dirname(target))
            elif target[:-2] != source[:-2] and os.path.dirname(source) in LAYERED:
                modules[source[:-2]].add(target[:-2])
    bad = [c for c in components(files) if not c <= RECURSION] + components(folders) + components(modules)
    for circle in bad:
        print("circle: " + " ".join(sorted(circle)))
    print(f"{len(wanted)} objects, {len(folders)} folders, {len(bad)} circles")
    return 1 if bad or len(wanted) < 100 else 0


if __name__ == "__main__":
    sys.exit(main())

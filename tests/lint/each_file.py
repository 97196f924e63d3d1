#!/usr/bin/env python3
"""Runs a slow lint over the files that standard input names, a process for each, and remembers those without a finding.

A file is remembered by a hash of all that a finding can depend on: its content and that of every header that it
includes, directly or not, its compile commands, the installed packages of headers, and what the options name. Headers
are looked for beside the file that includes them and in the folders of all compile commands. Conditions around an
#include do not count, so a header may stand for more files than needed. The memory is a folder of empty files below
${XDG_CACHE_HOME:-~/.cache}/dtp-lint, shared by all clones; what is not met for 60 days goes.

DTP_LINT=changed: of the files, only those for which any of it changed since the upstream branch (without one: since the
last commit but one).

Usage: each_file.py [--version TEXT] [--commands FILE] [--with FILE]... COMMAND...
COMMAND FILE prints findings; a failure without one is a finding as well."""
import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

INCLUDE = re.compile(rb'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
FOLDER = re.compile(r"-(?:I|isystem) ?([^ ]+)")
DAYS = 60


def text_of(*command):
    """What a command prints, or None where it fails or is not there."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def compile_commands(path):
    """The compile commands of each file, without the place of the clone, and all folders of headers."""
    commands, folders = {}, {".": None, "include": None}
    for entry in json.load(open(path, encoding="utf-8")) if path else []:
        file = os.path.relpath(os.path.join(entry["directory"], entry["file"]))
        command = entry["command"].replace(os.getcwd() + "/", "").replace(os.getcwd(), ".")
        commands.setdefault(file, []).append(command)
        folders.update(dict.fromkeys(FOLDER.findall(command)))
    return commands, tuple(folders)


@lru_cache(maxsize=None)
def read(path):
    """The digest of a file and the names that it includes."""
    with open(path, "rb") as file:
        content = file.read()
    return hashlib.sha256(content).hexdigest(), [os.fsdecode(name) for name in INCLUDE.findall(content)]


@lru_cache(maxsize=None)
def find(name, folders):
    """The first file of this name, or None: a header of the system."""
    paths = (os.path.normpath(os.path.join(folder, name)) for folder in folders)
    return next((path for path in paths if os.path.isfile(path)), None)


def closure(path, folders):
    """The file and every header that it includes, directly or not."""
    seen, left = {path}, [path]
    while left:
        file = left.pop()
        found = {find(name, (os.path.dirname(file),) + folders) for name in read(file)[1]} - {None}
        left += found - seen
        seen |= found
    return seen


def changed_files():
    """The files that changed, or None: all count as changed."""
    if os.environ.get("DTP_LINT", "all") != "changed":
        return None
    base = text_of("git", "merge-base", "HEAD", "@{upstream}") or text_of("git", "rev-parse", "-q", "--verify", "HEAD~1")
    if base is None:
        return None
    names = text_of("git", "diff", "--name-only", base.strip()) + text_of("git", "ls-files", "--others",
                                                                          "--exclude-standard")
    return set(names.split("\n"))


def open_memory():
    """The folder of the memory, or None where none can be made."""
    folder = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "dtp-lint")
    try:
        os.makedirs(folder, exist_ok=True)
        for entry in list(os.scandir(folder)):
            if entry.stat().st_mtime < time.time() - DAYS * 86400:
                os.unlink(entry.path)
    except OSError:
        return None
    return folder


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", default="")
    parser.add_argument("--commands")
    parser.add_argument("--with", dest="others", action="append", default=[])
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    start, files = time.time(), sys.stdin.read().split()
    (commands, folders), changed, memory = compile_commands(options.commands), changed_files(), open_memory()
    others = [os.path.relpath(path) for path in [__file__, *options.others]]
    common = [options.version, text_of("dpkg-query", "-W", "*-dev"), [read(path)[0] for path in others]]

    def look_at(file):
        """The findings of a file, or None where it need not be looked at."""
        # A file that is not compiled gets the options of one that is: any may be the one.
        own = commands.get(file) or sorted(commands.items())
        parts = closure(file, folders)
        if changed is not None and not changed & (parts | set(others)):
            return None
        key = json.dumps([common, own, sorted((path, read(path)[0]) for path in parts)])
        entry = memory and os.path.join(memory, hashlib.sha256(key.encode()).hexdigest())
        if entry and os.path.exists(entry):
            os.utime(entry)
            return None
        done = subprocess.run(options.command + [file], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        found = done.stdout.replace(os.getcwd() + "/", "").splitlines()
        if done.returncode != 0 and not found:
            found = [f"{file}: {options.command[0]} exited with {done.returncode}"]
        # What was written meanwhile is not what the hash is of.
        if entry and not found and all(os.stat(path).st_mtime < start for path in parts):
            open(entry, "w", encoding="utf-8").close()
        return found

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        answers = [answer for answer in pool.map(look_at, files) if answer is not None]
    findings = sorted({line for answer in answers for line in answer})
    print("\n".join(findings + [f"{len(files)} files, {len(answers)} looked at"]))
    if findings:
        print(f"{len(findings)} finding(s)")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The cases of a long test that DTP_QUARTER=k/4 selects, as tests/support/quarter.h has it; without it, all.

As a command: prints the lines of standard input that are selected."""
import os
import re
import sys


def has(i, n):
    """Whether case i of n is to be run."""
    text = os.environ.get("DTP_QUARTER")
    if text is None:
        return True
    if not re.fullmatch("[1-4]/4", text):
        sys.exit(f"DTP_QUARTER is '{text}' instead of 1/4, 2/4, 3/4 or 4/4")
    k = int(text[0]) - 1
    return i % n == k % n if n < 4 else (i + i // 4 + i // 16) % 4 == k


def of(cases, out=sys.stdout):
    """The cases that are to be run; says how many."""
    cases = list(cases)
    found = [case for i, case in enumerate(cases) if has(i, len(cases))]
    if "DTP_QUARTER" in os.environ:
        print(f"quarter {os.environ['DTP_QUARTER']}: {len(found)} of {len(cases)} cases", file=out, flush=True)
    return found


if __name__ == "__main__":
    sys.stdout.writelines(of(sys.stdin, sys.stderr))

#!/usr/bin/env bash
# cppcheck's warnings and performance findings are errors (each_file.py: of which files).
#
# AssignmentIntegerToAddress is left to the compiler, which rejects such an assignment: cppcheck
# 2.10 takes a function that returns a function pointer for one that returns an integer. uninitdata is left to
# clang-tidy's analyzer and the sanitizers: cppcheck takes a fresh pointer in the list of DTP_MEMORY for a read of its memory.
. "$(dirname "$0")/common.sh"
command -v cppcheck >/dev/null || exit 77
product c | each_file --version "$(cppcheck --version)" --with "$0" \
    cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr -I. -Iinclude \
    --error-exitcode=1 --suppress=missingIncludeSystem --suppress=normalCheckLevelMaxBranches \
    --suppress=AssignmentIntegerToAddress --suppress=uninitdata

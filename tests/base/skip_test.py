#!/usr/bin/env python3
"""Checks what ctest says of cases that skip: tests/base/skip_test.py SKIP_REGEX FAIL_REGEX [EMULATOR…] PROGRAM

PROGRAM holds the hidden cases of skip_test.cpp; the regular expressions are those that every suite has.
"""
import os
import re
import subprocess
import sys
import tempfile

skip, fail, *program = sys.argv[1:]
command = " ".join(f"[=[{word}]=]" for word in program)
expected = {"skips": "Skipped", "checks and skips": "Failed", "fails and skips": "Failed", "passes": "Passed", "fails": "Failed"}
with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "CTestTestfile.cmake"), "w", encoding="utf-8") as file:
        for case in expected:
            file.write(f"add_test([=[{case}]=] {command} [=[{case}]=])\n"
                       f"set_tests_properties([=[{case}]=] PROPERTIES SKIP_REGULAR_EXPRESSION [=[{skip}]=] "
                       f"FAIL_REGULAR_EXPRESSION [=[{fail}]=])\n")
    output = subprocess.run(["ctest"], cwd=folder, capture_output=True, text=True, check=False).stdout
for case, outcome in expected.items():
    found = re.search(rf"Test +#\d+: {case} \.*(?:\*+)? *(Passed|Skipped|Failed)", output)
    if not found or found.group(1) != outcome:
        sys.exit(f"'{case}' should be {outcome}; ctest says:\n{output}")

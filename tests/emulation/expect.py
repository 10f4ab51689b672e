"""Runs a program that must fail with a message: expect.py PATTERN COMMAND..."""
import re
import subprocess
import sys

p = subprocess.run(sys.argv[2:], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
if p.returncode == 0 or not re.search(sys.argv[1], p.stdout + p.stderr):
    sys.exit(f"exit code {p.returncode}, expected a failure with '{sys.argv[1]}':\n{p.stdout}{p.stderr}")

"""Checks tests/count.py on made-up logs; prints TAP. Usage: count_test.py ROOT."""
import json
import os
import subprocess
import sys
import tempfile

CRITERION = "[====] Synthesis: Tested: 3 | Passing: 2 | Failing: 1 | Crashing: 0 \n[SKIP] a::b: why\n"
CASES = [
    # name, entry of the log, last line, exit code
    ("criterion", dict(result="FAIL", stderr=CRITERION), "2 passed, 1 failed, 1 skipped", 1),
    ("criterion_in_colour", dict(result="OK", stderr="[\x1b[0;34m====\x1b[0m] \x1b[0;1mSynthesis: Tested: \x1b[0;34m3\x1b[0m | "
                                 "Passing: \x1b[0;32m3\x1b[0m | Failing: \x1b[0;31m0\x1b[0m | Crashing: \x1b[0;31m0\x1b[0m \n"),
     "3 passed, 0 failed, 0 skipped", 0),
    ("tap", dict(result="OK", stdout="1..3\nok 1 a\nok 2 b # SKIP no\nok 3 c\n"), "2 passed, 0 failed, 1 skipped", 0),
    ("tap_that_ends_early", dict(result="ERROR", stdout="1..3\nok 1 a\n"), "1 passed, 2 failed, 0 skipped", 1),
    ("crash_outside_a_case", dict(result="TIMEOUT", stdout="1..1\nok 1 a\n"), "1 passed, 1 failed, 0 skipped", 1),
    ("other_good", dict(result="OK"), "1 passed, 0 failed, 0 skipped", 0),
    ("other_bad", dict(result="FAIL"), "0 passed, 1 failed, 0 skipped", 1),
    ("whole_test_skipped", dict(result="SKIP"), "0 passed, 0 failed, 1 skipped", 0),
]


def main():
    count = os.path.join(sys.argv[1], "tests", "count.py")
    failed = 0
    print(f"1..{len(CASES)}")
    for i, (name, entry, last, code) in enumerate(CASES, 1):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as log:
            log.write(json.dumps(dict(entry, name=name)) + "\n")
            log.flush()
            p = subprocess.run([sys.executable, count, log.name], capture_output=True, text=True)
        good = p.stdout.splitlines()[-1] == last and p.returncode == code
        failed += not good
        print(f"{'ok' if good else 'not ok'} {i} {name}")
        if not good:
            print(f"# code {p.returncode}, last line: {p.stdout.splitlines()[-1]}")
    sys.exit(1 if failed else 0)


main()

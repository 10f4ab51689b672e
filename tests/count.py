"""Counts the single cases of a meson test log and shows what failed.

Usage: count.py testlog.json. Knows TAP and Criterion's summary; any other test is one case. The last line is
"N passed, N failed, N skipped", the exit code 1 when a case failed or none ran.
"""
import json
import re
import sys

SUMMARY = re.compile(r"Synthesis: Tested: (\d+) \| Passing: (\d+) \| Failing: (\d+) \| Crashing: (\d+)")
PLAN = re.compile(r"^1\.\.(\d+)", re.M)
TAP = re.compile(r"^(not )?ok\b(?: \d+)?(.*)$", re.M)


def strip_colours(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def count_tap(out):
    """(passed, failed, skipped); planned tests that gave no line failed."""
    passed = failed = skipped = 0
    for bad, rest in TAP.findall(out):
        if re.search(r"#\s*skip", rest, re.I):
            skipped += 1
        elif bad:
            failed += 1
        else:
            passed += 1
    planned = int(PLAN.search(out).group(1))
    return passed, failed + max(0, planned - passed - failed - skipped), skipped


def count(test):
    """(passed, failed, skipped) of one entry of the log."""
    out = strip_colours(test.get("stdout", "") + "\n" + test.get("stderr", ""))
    good = test["result"] in ("OK", "EXPECTEDFAIL")
    summary = SUMMARY.search(out)
    if test["result"] == "SKIP":
        return 0, 0, 1
    if summary:
        tested, passing = int(summary.group(1)), int(summary.group(2))
        cases = passing, tested - passing, len(re.findall(r"^\[SKIP\]", out, re.M))
    elif PLAN.search(out):
        cases = count_tap(out)
    else:
        return (1, 0, 0) if good else (0, 1, 0)
    if not good and cases[1] == 0:  # it crashed or timed out outside a case
        cases = cases[0], 1, cases[2]
    return cases


def show(test):
    print(f"\n--- {test['name']}: {test['result']}, exit code {test.get('returncode')}")
    lines = strip_colours(test.get("stdout", "") + "\n" + test.get("stderr", "")).splitlines()
    wanted = [s for s in lines if s.strip() and not re.match(r"(ok |\[PASS\]|\[RUN )", s)]
    print("\n".join(wanted[-60:]))


def main():
    totals = [0, 0, 0]
    try:
        with open(sys.argv[1], encoding="utf-8", errors="replace") as f:
            tests = [json.loads(line) for line in f if line.strip()]
    except OSError as why:
        print(f"no test ran: {why}")
        tests = []
    for test in tests:
        cases = count(test)
        totals = [a + b for a, b in zip(totals, cases)]
        if cases[1]:
            show(test)
        print(f"{test['name']}: {cases[0]} passed, {cases[1]} failed, {cases[2]} skipped")
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    sys.exit(1 if totals[1] or not tests else 0)


main()

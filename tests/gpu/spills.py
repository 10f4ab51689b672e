#!/usr/bin/env python3
"""Fails when the assembler had to spill registers of one of our CUDA kernels into memory.

    spills.py REPORT...

Each report is what `nvcc -Xptxas -v` said of one file (the build keeps them). Prints a TAP line a file with the largest number of
registers of a kernel; a kernel that spills is named, and as a remark one with a stack frame for other reasons (an array indexed at
run time).
"""
import pathlib
import re
import sys

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\S+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")


def read_report(text):
    """Number of kernels, most registers, and (kernel, bytes of its frame, of its spills) where there is one."""
    kernel, count, most, frames = "?", 0, 0, []
    for line in text.splitlines():
        if found := ENTRY.search(line):
            kernel = f"{found.group(1)} for {found.group(2)}"
            count += 1
        elif found := FRAME.search(line):
            frame, stores, loads = map(int, found.groups())
            if frame or stores or loads:
                frames.append((kernel, frame, stores + loads))
        elif found := REGISTERS.search(line):
            most = max(most, int(found.group(1)))
    return count, most, frames


def main():
    bad = 0
    print(f"1..{len(sys.argv) - 1}")
    for number, name in enumerate(sys.argv[1:], 1):
        path = pathlib.Path(name)
        count, most, frames = read_report(path.read_text())
        good = count > 0 and not any(spilled for _, _, spilled in frames)
        bad += not good
        print(f"{'ok' if good else 'not ok'} {number} {path.stem}: {count} kernels, at most {most} registers")
        for kernel, frame, spilled in frames:
            print(f"# {kernel}: stack frame of {frame} bytes, {spilled} bytes spilled")
    return 1 if bad else 0


sys.exit(main())

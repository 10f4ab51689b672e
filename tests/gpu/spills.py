#!/usr/bin/env python3
"""Compiles our CUDA kernels and fails when the assembler had to spill registers into memory.

    spills.py NVCC ROOT [--arch sm_80,sm_90] [FILE.cu...]

Without files: all of runtime/kernels/cuda. Prints a TAP line for each file and architecture with the
largest number of registers of a kernel; a kernel that spills is named, and as a remark one with a
stack frame for other reasons (an array indexed at run time). Needs no GPU.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ENTRY = re.compile(r"Compiling entry function '(\S+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")


def compile_log(nvcc, root, source, arch):
    """What the assembler says of one file; None and the message where it does not compile."""
    with tempfile.TemporaryDirectory() as out:
        done = subprocess.run([nvcc, "-std=c++20", "-arch=" + arch, "-I" + str(root), "-O3", "-Xptxas", "-v", "-c",
                               str(source), "-o", out + "/kernel.o"], capture_output=True, text=True)
    return (done.stderr if done.returncode == 0 else None), done.stdout + done.stderr


def read_log(log):
    """Largest number of registers, and (kernel, bytes of its frame, of its spills) where there is one."""
    kernel, most, frames = "?", 0, []
    for line in log.splitlines():
        if found := ENTRY.search(line):
            kernel = found.group(1)
        elif found := FRAME.search(line):
            frame, stores, loads = map(int, found.groups())
            if frame or stores or loads:
                frames.append((kernel, frame, stores + loads))
        elif found := REGISTERS.search(line):
            most = max(most, int(found.group(1)))
    return most, frames


def main():
    args = sys.argv[1:]
    archs = ["sm_90"]
    if "--arch" in args:
        at = args.index("--arch")
        archs = args[at + 1].split(",")
        del args[at:at + 2]
    nvcc, root = args[0], pathlib.Path(args[1])
    sources = [pathlib.Path(a) for a in args[2:]] or sorted((root / "runtime/kernels/cuda").glob("*.cu"))
    number, failures = 0, 0
    print(f"1..{len(sources) * len(archs)}", flush=True)
    for source in sources:
        for arch in archs:
            number += 1
            log, text = compile_log(nvcc, root, source, arch)
            most, frames = read_log(log) if log is not None else (0, [])
            good = log is not None and not any(spilled for _, _, spilled in frames)
            failures += not good
            print(f"{'ok' if good else 'not ok'} {number} {source.name} {arch}: at most {most} registers", flush=True)
            for kernel, frame, spilled in frames:
                print(f"# {kernel}: stack frame of {frame} bytes, {spilled} bytes spilled")
            if log is None:
                print("# " + text.strip().replace("\n", "\n# "))
    return 1 if failures else 0


sys.exit(main())

"""run.sh without a GPU: test_run.py BUILD, a build with -Demulate=true. Prints TAP.

A dry run proves that every command line of the script is valid, every result is read, and the table is printed; and another, with a
program that fails and hangs in places, that the rest is measured all the same.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(sys.argv[1]).resolve()
HERE = pathlib.Path(__file__).resolve().parent
FIGURES = ("kernels against the reference", "GPT-2 124M", "ways of a step of GPT-2 124M", "GPT-2 1558M", "Fashion-MNIST",
           "GPT on our sources", "limits of the same run", "layernorm,", "multi_adamw,", "ResNet-50", "ways of a step of ResNet-50",
           "small GPT")


def run(out, *words, **environment):
    p = subprocess.run(["bash", HERE / "run.sh", "--out", out, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, timeout=280,
                       env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHON": sys.executable, **environment})
    return p.returncode, p.stdout


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def rows(out):
    return json.loads((out / "results.json").read_text())["rows"]


def verdicts(out):
    return {name: [r for r in rows(out) if r[0].strip().startswith(name)] for name in FIGURES}


def dry_run(folder):
    """Every figure is there, and in the table that is printed last."""
    code, text = run(folder, "--emulated", BUILD)
    assert code == 0, text
    for name, found in verdicts(folder).items():
        assert len(found) == (2 if name == FIGURES[0] else 1), (name, found, text)
        assert "dry run" in found[0] or found[0][3] in ("", "ok"), found
        assert text.rindex(name) > text.index("what "), name
    assert not any(r[3] == "FAILED" for r in rows(folder)), text
    kernels = json.loads((folder / "results.json").read_text())["kernels"]["lines"]
    assert any(k["op"] == "multi_adamw" and k["bytes"] > 1e7 for k in kernels), "the update of eight parameters was left out"
    left = [r[0] for r in rows(folder) if r[1].startswith("left out")]
    assert all(name.startswith("PyTorch") for name in left), text
    assert (folder / "table.txt").read_text() in text, text
    assert {f.name for f in folder.iterdir()} == {"table.txt", "results.json", "log.txt"}, list(folder.iterdir())


def runs(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


FAULTS = """case "$*" in
*"bench kernels"*) echo broken; exit 1 ;;
*"bench step"*1558M*) sleep 1000 & echo $! >"{pid}"; wait ;;
*"bench step"*resnet-graph.yaml*) printf nonsense >"$7"; exit 0 ;;
*train*quickstart_gpt*) kill -SEGV $$ ;;
*) exec "{program}" "$@" ;;
esac"""


def one_step_does_not_hide_another(folder):
    """A program that breaks, dies, writes nonsense and hangs; what it left running is ended, and the exit code is the gravest."""
    fake, pid = folder / "build/tests/emulation/trireme-emulated", folder / "pid"
    fake.parent.mkdir(parents=True)
    script(fake, FAULTS.format(pid=pid, program=BUILD / "tests/emulation/trireme-emulated"))
    (fake.parent / "emulated_parity").symlink_to(BUILD / "tests/emulation/emulated_parity")
    (folder / "build/tests/gpu").mkdir()
    (folder / "build/tests/gpu/make_tokens").symlink_to(BUILD / "tests/gpu/make_tokens")
    code, text = run(folder / "out", "--emulated", folder / "build", "--most", "15")
    assert code == 5, (code, text)
    found = verdicts(folder / "out")
    for name, why in {"GPT-2 1558M": "ended after", "GPT on our sources": "failed (-11)", "ResNet-50": "no result"}.items():
        assert found[name][0][3] == "FAILED" and why in found[name][0][1], (name, found[name], text)
    kernels = [r for r in rows(folder / "out") if r[0] == "bench kernels"]
    assert kernels and "failed (1): broken" in kernels[0][1], text
    assert any(r[0].startswith("ResNet-50") and "tuned" in r[0] and r[3] == "" for r in rows(folder / "out")), text
    for name in "kernels against the reference", "GPT-2 124M", "Fashion-MNIST", "small GPT":
        assert found[name] and found[name][0][3] in ("ok", "dry run"), (name, text)
    assert not runs(pid.read_text().strip()), "what hung still runs"


def a_wrong_kernel_is_told(folder):
    """Of the parity program; and that a time that is over leaves the table."""
    build = folder / "build/tests/emulation"
    build.mkdir(parents=True)
    (build / "trireme-emulated").symlink_to(BUILD / "tests/emulation/trireme-emulated")
    script(build / "emulated_parity", "echo 'ok     cast_cuda: 48 cases'; echo 'not ok adamw_cuda: 0 cases'; exit 1")
    code, text = run(folder / "out", "--emulated", folder / "build", "--seconds", "10", "--quick", "--no-peer")
    assert code == 4, (code, text)  # the gravest
    said = {r[0].strip(): r[1] for r in rows(folder / "out")}
    assert said["GPT-2 1558M"] == "left out: --quick" and said["PyTorch, ResNet-50"] == "left out: --no-peer", said
    assert "1 of 2" in said["kernels against the reference"], said
    assert said["small GPT, graph"] == "no time left", said


def a_failed_build_is_told(folder):
    """By its exit code and the end of its log, where there is nothing else to run; the tools before it are pretended."""
    script(folder / "nvidia-smi", "echo 'GPU 0: pretended'")
    script(folder / "nvcc", "exit 1")
    script(folder / "ninja", "exit 1")
    script(folder / "meson", "echo broken meson; exit 1")
    code, text = run(folder / "out", "--build", folder / "build", "--no-peer", PATH=f"{folder}:{os.environ['PATH']}")
    assert code == 3 and "broken meson" in text and "nothing to run" in text, (code, text)
    assert (folder / "out/build.log").exists() and not (folder / "out/table.txt").exists()


def no_gpu_is_said(folder):
    """Where nvidia-smi fails, and where it finds nothing."""
    for said in "echo 'has no devices' >&2; exit 9", "exit 0":
        script(folder / "nvidia-smi", said)
        code, text = run(folder / "out", PATH=f"{folder}:{os.environ['PATH']}")
        assert code == 77 and text == "no GPU: nvidia-smi lists none, so nothing was run\n", (code, text)
    assert not (folder / "out").exists()


def wrong_use_is_refused(folder):
    for words in ("--speed",), ("--out",):
        p = subprocess.run(["bash", HERE / "run.sh", *words], capture_output=True, text=True, timeout=30)
        assert p.returncode == 2, p


TESTS = (dry_run, one_step_does_not_hide_another, a_wrong_kernel_is_told, a_failed_build_is_told, no_gpu_is_said,
         wrong_use_is_refused)
names = sys.argv[2:] or [t.__name__ for t in TESTS]
chosen = [t for t in TESTS if t.__name__ in names]
print(f"1..{len(chosen)}")
bad = 0
for number, test in enumerate(chosen, 1):
    with tempfile.TemporaryDirectory() as folder:
        try:
            test(pathlib.Path(folder))
            print(f"ok {number} {test.__name__}", flush=True)
        except (AssertionError, subprocess.TimeoutExpired) as why:
            bad += 1
            print(f"not ok {number} {test.__name__}")
            print("\n".join("# " + line for line in str(why).replace("\\n", "\n").splitlines()), flush=True)
sys.exit(bad > 0)

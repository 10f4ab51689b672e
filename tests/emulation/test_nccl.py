"""The NCCL transport on emulated devices: test_nccl.py MP_NCCL. Prints TAP."""
import os
import subprocess
import sys

ENV = dict(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
           OMPI_MCA_mpi_yield_when_idle="1", OMP_NUM_THREADS="1")
CASES = [("sums", 4, {}), ("sums", 1, {}), ("slices", 4, {}), ("copies", 3, {}), ("split", 4, {}), ("split", 3, {}),
         ("capture", 4, {}), ("late", 3, {}), ("shared_device", 2, {"EMULATE_SHARED": "1"}), ("dead", 3, {})]


def run(case, ranks, extra):
    p = subprocess.run(["timeout", "-k", "5", "60", "mpirun", "-n", str(ranks), "--bind-to", "none", sys.argv[1], case],
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, env={**os.environ, **ENV, **extra})
    text = p.stdout + p.stderr
    if "ThreadSanitizer" in text or "AddressSanitizer" in text:
        return text
    # a rank that died makes mpirun fail and end the others, some of which have said before why they stopped
    good = "remote process exited" in text or "stopped" in text or p.returncode == 137 if case == "dead" else p.returncode == 0
    return None if good else f"exit code {p.returncode}\n{text}"


print(f"1..{len(CASES)}")
failed = False
for i, (case, ranks, extra) in enumerate(CASES, 1):
    bad = run(case, ranks, extra)
    print(f"{'not ok' if bad else 'ok'} {i} {case} on {ranks} ranks")
    if bad:
        failed = True
        print("\n".join("# " + line for line in bad.splitlines()))
sys.exit(failed)

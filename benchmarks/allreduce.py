"""Joins results of `trireme bench allreduce` from repeated runs: the best time of each row over all files, and its ratios.

allreduce.py FILE.json...

Other work on a machine only ever adds time, so that the best of several runs is closest to what the machine can do; the
limit and MPI_Allreduce get the same choice. Results of unlike environments are refused, ranks and nodes included.
"""
import statistics
import sys

import environment

LIMITS = ("plain sum", "plain link")


def best_rows(results):
    """{(size, dtype, algorithm): (best us, median of medians us, wrong)}."""
    found = {}
    for result in results.values():
        for line in result["lines"]:
            found.setdefault((line["size"], line["dtype"], line["algorithm"]), []).append(line)
    return {key: (min(x["time_us"] for x in lines), statistics.median(x["median_us"] for x in lines),
                  sum(x["wrong"] for x in lines)) for key, lines in found.items()}


def table(rows):
    """Markdown lines."""
    out = ["| bytes | dtype | algorithm | best us | median us | busbw GB/s | MPI_Allreduce / it | share of limit | wrong |",
           "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for (size, dtype, name), (best, median, wrong, busbw) in rows.items():
        mpi = rows.get((size, dtype, "MPI_Allreduce"))
        limit = next((rows[k] for k in ((size, dtype, n) for n in LIMITS) if k in rows), None)
        out.append(f"| {size} | {dtype} | {name} | {best:.1f} | {median:.1f} | {busbw:.2f} | "
                   f"{f'{mpi[0] / best:.2f}' if mpi else ''} | {f'{100 * limit[0] / best:.0f} %' if limit else ''} | {wrong} |")
    return out


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    results = {path: environment.read(path) for path in sys.argv[1:]}
    environment.require_alike(results, ("time",))
    e = next(iter(results.values()))["environment"]
    rows = {}
    for (size, dtype, name), (best, median, wrong) in best_rows(results).items():
        busbw = size / best * 1e-3 * 2 * (e["ranks"] - 1) / e["ranks"]
        rows[size, dtype, name] = (best, median, wrong, busbw)
    print("\n".join(table(rows)))
    print(f"\nBest of {len(results)} runs. {environment.describe(e)}")


main()

"""Joins results of `trireme bench scaling` into one table and one plot.

scaling.py FILE.json... [--svg FILE] [--across KEY[,KEY]]

Each file is a series, named by its file. Results of unlike environments are refused; --across names members of the
environment that the comparison is about (link, commit ...).
"""
import argparse
import html
import math
import os

import environment

COLOURS = ("#1b6ca8", "#d1495b", "#3d8361", "#b07d12", "#6a4c93", "#555555")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 330, 300, 60, 34, 46  # of a panel


def panels():
    """Title, and what a line of a result gives as (name, value) in it."""
    def level(line):
        return [(k, line[k + "_bytes"] / 1e6) for k in ("flat", "intra", "inter")]

    return (("efficiency, %", lambda line: [("", 100 * line["efficiency"])]),
            ("exposed communication, % of the step", lambda line: [("", 100 * line["exposed_comm_ms"] / line["median_ms"])]),
            ("MB that a rank sends in a step", level))


def series(results, value):
    """[(name, [(ranks, y)])] of one panel; lines that are zero throughout are left out."""
    found = {}
    for file, result in results.items():
        for line in result["lines"]:
            for name, y in value(line):
                key = " ".join(x for x in (file if len(results) > 1 else "", line["mode"], name) if x)
                found.setdefault(key, []).append((line["ranks"], y))
    return [(k, points) for k, points in found.items() if any(y for _, y in points)]


def round_up(x):
    """1, 2 or 5 times a power of ten, at least x."""
    scale = 10 ** math.floor(math.log10(x)) if x > 0 else 1
    return next(m * scale for m in (1, 2, 5, 10) if m * scale >= x * (1 - 1e-9))


def panel(x0, title, lines):
    """One diagram: ranks on a logarithmic axis against values from 0."""
    ranks = sorted({r for _, points in lines for r, _ in points}) or [1]
    top = round_up(max((y for _, points in lines for _, y in points), default=1) or 1)
    bottom, right = HEIGHT - BOTTOM, WIDTH - 14
    span = math.log2(ranks[-1] / ranks[0]) or 1

    def at(r, y):
        return f"{x0 + LEFT + (right - LEFT) * math.log2(r / ranks[0]) / span:.1f},{bottom - (bottom - TOP) * y / top:.1f}"

    out = [f'<text x="{x0 + LEFT}" y="18" class="title">{html.escape(title)}</text>']
    for i in range(5):
        x, y = at(ranks[0], top * i / 4).split(",")
        out.append(f'<path d="M{x},{y}H{x0 + right}" class="grid"/><text x="{x0 + LEFT - 6}" y="{float(y) + 4:.1f}" '
                   f'text-anchor="end">{top * i / 4:.4g}</text>')
    for r in ranks:
        x, y = at(r, 0).split(",")
        out.append(f'<text x="{x}" y="{float(y) + 16:.1f}" text-anchor="middle">{r}</text>')
    out.append(f'<text x="{x0 + (LEFT + right) / 2}" y="{bottom + 34}" text-anchor="middle">ranks</text>')
    for i, (name, points) in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        dash = ' stroke-dasharray="5 3"' if "strong" in name else ""
        out.append(f'<polyline points="{" ".join(at(*p) for p in points)}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        out += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in (at(*p).split(",") for p in points)]
        out.append(f'<text x="{x0 + LEFT}" y="{HEIGHT + 4 + 16 * i}" fill="{colour}">{"– –" if dash else "——"} {html.escape(name)}</text>')
    return out


def plot(results):
    """The text of an SVG image."""
    shown = [(title, series(results, value)) for title, value in panels()]
    notes = [environment.describe(r["environment"]) for r in results.values()]
    base = HEIGHT + 16 * max(len(lines) for _, lines in shown) + 12
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH * len(shown)}" height="{base + 15 * len(notes)}" '
           'font-family="sans-serif" font-size="11">',
           "<style>.title{font-weight:bold;font-size:13px}.grid{stroke:#ddd}</style>",
           '<rect width="100%" height="100%" fill="white"/>']
    for i, (title, lines) in enumerate(shown):
        out += panel(i * WIDTH, title, lines)
    for i, note in enumerate(notes):
        out.append(f'<text x="14" y="{base + 15 * i}" font-size="9" fill="#555">{html.escape(note)}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def table(results):
    """Markdown lines."""
    head = ("run", "mode", "ranks", "nodes", "batch", "step ms (median)", "per s", "efficiency", "exposed", "flat MB",
            "intra MB", "inter MB")
    rows = [head, ["---"] * len(head)]
    for name, result in results.items():
        for line in result["lines"]:
            rows.append((name, line["mode"], line["ranks"], line["nodes"], line["batch"],
                         f"{line['best_ms']:.2f} ({line['median_ms']:.2f})", f"{line['per_s']:.1f}",
                         f"{100 * line['efficiency']:.1f} %", f"{100 * line['exposed_comm_ms'] / line['median_ms']:.1f} %",
                         *(f"{line[k + '_bytes'] / 1e6:.2f}" for k in ("flat", "intra", "inter"))))
    return ["| " + " | ".join(str(c) for c in row) + " |" for row in rows]


def main():
    p = argparse.ArgumentParser(description="joins results of bench scaling")
    p.add_argument("file", nargs="+")
    p.add_argument("--svg")
    p.add_argument("--across", default="", help="members of the environment that may differ")
    args = p.parse_args()
    results = {os.path.splitext(os.path.basename(f))[0]: environment.read(f) for f in args.file}
    environment.require_alike(results, environment.MAY_DIFFER + tuple(args.across.split(",")))
    print("\n".join(table(results)))
    for r in results.values():
        print("\n" + environment.describe(r["environment"]))
    if args.svg:
        with open(args.svg, "w") as f:
            f.write(plot(results))


main()

"""Environments of results: where and with what a benchmark ran. Results of unlike environments are not compared."""
import json
import sys

MAY_DIFFER = ("ranks", "nodes", "time")  # what a comparison may be about, and when it was measured


def read(path):
    """The object of a result file, which holds its environment."""
    with open(path) as f:
        result = json.load(f)
    if "environment" not in result:
        sys.exit(f"{path}: the result does not say in which environment it was measured")
    return result


def differences(a, b, may_differ=MAY_DIFFER):
    """'key: this, that' for each member in which two environments differ."""
    return [f"{k}: {a.get(k)}, {b.get(k)}" for k in sorted({*a, *b}) if k not in may_differ and a.get(k) != b.get(k)]


def require_alike(results, may_differ=MAY_DIFFER):
    """Ends the program when results, by name, are of unlike environments."""
    (first, base), *others = results.items()
    for name, result in others:
        found = differences(base["environment"], result["environment"], may_differ)
        if found:
            sys.exit(f"{first} and {name} are not comparable, their environments differ:\n  " + "\n  ".join(found))


def describe(e):
    """One line."""
    link = f", link {e['link']}" if e["link"] else ""
    return (f"{e['cpu']}, {e['cores']} cores a node, {e['ranks']} ranks of {e['threads']} thread(s) on {e['nodes']} "
            f"{'pretended ' if e['pretended'] else ''}node(s){link}; {e['mpi']}, {e['products']}, {e['compiler']}; "
            f"commit {e['commit']}, {e['time']}")

#!/usr/bin/python3
"""Files made by h5py, read back by `trireme data info`, and files of `data import` read by h5py."""
import os
import subprocess

from harness import PROGRAM, h5py, np, run_tests


def info(path, code=0):
    p = subprocess.run([PROGRAM, "data", "info", path], capture_output=True, text=True, timeout=60)
    assert p.returncode == code, f"{path}: code {p.returncode}, wanted {code}\n{p.stdout}{p.stderr}"
    return p.stdout + p.stderr


def line(text, name):
    for row in text.splitlines():
        if row.startswith(name):
            return row[len(name):].strip()
    raise AssertionError(f"no line '{name}' in:\n{text}")


def test_tokens_of_every_type(t):
    for dtype in ["u1", "i1", "<u2", ">u2", "<i4", ">i4", "<u4", "<i8", ">i8", "<u8"]:
        for chunks in [None, (16,)]:
            path = t.path("t.h5")
            with h5py.File(path, "w") as f:
                data = (np.arange(100) % 120).astype(dtype)
                f.create_dataset("train/tokens", data=data, chunks=chunks,
                                 compression="gzip" if chunks else None, shuffle=bool(chunks))
                f.attrs["vocab"] = np.uint16(120)
            out = info(path)
            assert line(out, "train ") == "100 tokens", out
            assert line(out, "largest id") == "99", out
            assert line(out, "vocab") == "120", out


def test_images(t):
    path = t.path("i.h5")
    rng = np.random.default_rng(1)
    with h5py.File(path, "w") as f:
        f.create_dataset("train/images", data=rng.integers(0, 256, (7, 6, 5, 3), dtype=np.uint8),
                         chunks=(2, 6, 5, 3), compression="gzip")
        f["train/labels"] = np.array([0, 1, 2, -100, 2, 1, 0], dtype=">i2")
        f.attrs["mean"] = np.array([0.25, 0.5, 0.75], dtype="f4")
        f.attrs["scale"] = 0.5
        f.attrs["classes"] = 3
        f.attrs["tokenizer"] = "byte"
    out = info(path)
    assert line(out, "mean") == "0.25, 0.5, 0.75", out
    assert line(out, "scale") == "0.5, 0.5, 0.5", out
    assert line(out, "largest label") == "2", out
    assert line(out, "tokenizer") == "byte", out
    with h5py.File(path, "a") as f:
        f.attrs["classes"] = 2
    assert "row 2 is 2, must be 0..1 or -100" in info(path, 2)


def test_wrong_files(t):
    path = t.path("w.h5")
    cases = [("tokens", np.zeros(5), "must be integers"), ("tokens", np.zeros((2, 2), int), "must be integers"),
             ("other", np.zeros(5, int), "no entry")]
    for name, data, words in cases:
        with h5py.File(path, "w") as f:
            f["train/" + name] = data
        assert words in info(path, 2)
    with h5py.File(path, "w") as f:
        f.create_dataset("train/tokens", data=np.zeros(500, int), chunks=(100,), compression="lzf")
    assert "lzf" in info(path, 2)
    with h5py.File(path, "w") as f:
        f["train/tokens"] = np.zeros(5000, int)
    os.truncate(path, os.path.getsize(path) - 1024)
    assert "truncated" in info(path, 2)
    assert "No such file" in info(t.path("none.h5"), 2)


def test_imported_by_us(t):
    text = t.path("a.txt")
    out = t.path("a.h5")
    with open(text, "wb") as f:
        f.write(b"one two three " * 100)
    subprocess.run([PROGRAM, "data", "import", "text", text, "--tokenizer", "bpe:270", "-o", out], check=True,
                   capture_output=True, timeout=60)
    with h5py.File(out) as f:
        merges, ids = f["merges"][:], f["train/tokens"][:]
        pieces = [bytes([i]) for i in range(256)]
        for a, b in merges:
            pieces.append(pieces[a] + pieces[b])
        joined = b"".join(pieces[i] for i in ids) + b"".join(pieces[i] for i in f["validation/tokens"][:])
        assert joined == b"one two three " * 100
        assert f.attrs["vocab"] == 256 + len(merges) and f.attrs["tokenizer"] == "bpe"


run_tests(globals())

"""Every enumerator of the emulated CUDA headers has the value that it has in the real ones.

usage: headers.py CC EMULATED_INCLUDE REAL_INCLUDE HEADER...
"""
import os
import re
import subprocess
import sys
import tempfile


def enumerators(path):
    """Names in the enums of a header."""
    text = re.sub(r"/\*.*?\*/", "", open(path).read(), flags=re.S)
    names = []
    for body in re.findall(r"\benum\b[^{;]*\{(.*?)\}", text, flags=re.S):
        names += re.findall(r"(?:^|,)\s*([A-Za-z_]\w*)", body)
    return names


def values(cc, include, header, names, folder):
    """Prints of a program that was compiled with the headers of `include`."""
    source, program = os.path.join(folder, "values.c"), os.path.join(folder, "values")
    with open(source, "w") as f:
        f.write("#include <stdio.h>\n#include <%s>\nint main(void)\n{\n" % header)
        f.writelines('    printf("%s %%lld\\n", (long long)%s);\n' % (n, n) for n in names)
        f.write("    return 0;\n}\n")
    subprocess.run(cc.split() + ["-w", "-I", include, source, "-o", program], check=True)
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()


def main():
    cc, emulated, real, *headers = sys.argv[1:]
    bad = 0
    for header in headers:
        names = enumerators(os.path.join(emulated, header))
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = (values(cc, i, header, names, folder) for i in (emulated, real))
        for a, b in zip(ours, theirs):
            if a != b:
                print("%s: emulated %s, real %s" % (header, a, b))
                bad += 1
        print("%s: %d enumerators" % (header, len(names)))
        if not names:
            bad += 1
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())

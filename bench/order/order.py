"""Names of functions, from addresses: what was executed first stands first.

Arguments: the program, and files with the addresses that were executed in it. It prints what a linker takes as
`--symbol-ordering-file`.
"""
import bisect
import subprocess
import sys

program, traces = sys.argv[1], sys.argv[2:]
symbols = []
for line in subprocess.run(["nm", "--defined-only", program], capture_output=True, text=True, check=True).stdout.splitlines():
    address, kind, name = line.split(maxsplit=2)
    if kind in "tTwWi":
        symbols.append((int(address, 16), name))
symbols.sort()
starts = [address for address, _ in symbols]
names = {}
for trace in traces:
    with open(trace) as lines:
        for line in lines:
            at = bisect.bisect_right(starts, int(line, 16)) - 1
            # Several names may be of one function.
            first = bisect.bisect_left(starts, starts[at])
            for _, name in symbols[first : at + 1]:
                names.setdefault(name)
print("\n".join(names))

"""Attaches to an existing Commonhold object again and again: open, array, touch, close."""

import os
import statistics
import sys
import time

os.environ["COMMONHOLD_HOST"] = sys.argv[1]
name = sys.argv[2]

try:
    import commonhold as ch
except ImportError as error:
    print(f"the package commonhold cannot be imported: {error}", flush=True)
    sys.exit(0)


def attach():
    with ch.open(name, "r+") as opened:
        array = opened.array("u1")
        if array[0] != 1:
            raise SystemExit("the attached memory is not the object")
        array[1] = 1
        del array


attach()
print("ready", flush=True)
for line in sys.stdin:
    rounds = int(line)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        attach()
        times.append(time.perf_counter() - start)
    print(statistics.median(times), flush=True)

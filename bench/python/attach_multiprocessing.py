"""Attaches to an existing shared memory segment of the standard library again and again: attach, touch, close."""

import statistics
import sys
import time
from multiprocessing.shared_memory import SharedMemory

segment = SharedMemory(create=True, size=int(sys.argv[1]))
segment.buf[0] = 1


def attach():
    opened = SharedMemory(name=segment.name)
    if opened.buf[0] != 1:
        raise SystemExit("the attached memory is not the segment")
    opened.buf[1] = 1
    opened.close()


try:
    attach()
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "name":
            print(segment.name, flush=True)
            continue
        rounds = int(line)
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            attach()
            times.append(time.perf_counter() - start)
        print(statistics.median(times), flush=True)
finally:
    segment.close()
    segment.unlink()

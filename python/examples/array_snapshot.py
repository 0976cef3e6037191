"""An array is kept as it was while another process goes on writing it; then it is brought back.

python array_snapshot.py            1 GiB
python array_snapshot.py 16777216   so many bytes
"""

import multiprocessing as mp
import sys
import time

import commonhold as ch
import numpy as np

NAME = "/examples/counts"


def count(elements: int, stop: mp.Event) -> None:
    """Adds one to each element, over and over: at each instant the first is equal to the last, or one ahead."""
    counts = ch.array(NAME, mode="r+")
    while not stop.is_set():
        for part in np.array_split(np.arange(0, elements, 4096 // 8), 64):
            counts[part] += 1  # one element in each page


def main(size: int) -> None:
    elements = size // 8
    counts = ch.array(NAME, elements, "u8", create="new", freezable=True)
    counts[:: 4096 // 8] = 1
    stop = mp.Event()
    writer = mp.Process(target=count, args=(elements, stop))
    writer.start()
    try:
        while counts[0] < 3:
            time.sleep(0.001)
        with ch.open(NAME, "r+") as opened:
            opened.snapshot(NAME + "@now")
        now = ch.array(NAME + "@now")[:: 4096 // 8]
        assert 0 <= int(now[0]) - int(now[-1]) <= 1 and (np.diff(now.astype("i8")) <= 0).all()
        print(f"{now.min()} to {now.max()} at one instant")
    finally:
        stop.set()
        writer.join()
    counts[:] = ch.array(NAME + "@now")  # the way back
    assert (counts[:: 4096 // 8] == now).all()
    for name in (NAME, NAME + "@now"):
        ch.remove(name)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 30)

"""Sends an array of 1 GiB to a worker of a pool, and gets it back: by reference. Beside it an empty message."""

import multiprocessing
import statistics
import sys
import time


def back(array):
    return array


def empty():
    return None


def main() -> None:
    try:
        import commonhold as ch
    except ImportError as error:
        print(f"there is no package commonhold: {error}", flush=True)
        return
    state, name = sys.argv[1:]
    host = ch.connect(state)
    array = host.array(name, 1 << 30, "u1", create=True, reserve=False)
    array[0] = 1
    pool = multiprocessing.get_context("spawn").Pool(1)

    def ours() -> None:
        got = pool.apply(back, (array,))
        if got.__array_interface__["data"] != array.__array_interface__["data"] or type(got) is not ch.SharedArray:
            raise SystemExit("a copy came back")

    began = time.perf_counter()
    ours()
    first = time.perf_counter() - began
    print("ready", flush=True)
    for line in sys.stdin:
        what, rounds = line.split()
        if what == "first":
            print(1e6 * first, flush=True)
            continue
        call = ours if what == "ours" else (lambda: pool.apply(empty))
        times = []
        for _ in range(int(rounds)):
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
        print(1e6 * statistics.median(times), flush=True)
    pool.terminate()


if __name__ == "__main__":
    main()

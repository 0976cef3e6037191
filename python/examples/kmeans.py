"""k-means on two hosts: each assigns its half of the points, and adds its sums under a mutex that hosts share.

alpha$ python kmeans.py 0           creates the points, and waits for the other
beta$  python kmeans.py 1
       python kmeans.py alone       the same in one process, with threads: to compare
"""

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import commonhold as ch
import numpy as np

NAME, PARTS, POINTS, CENTRES, ROUNDS, LIMIT_S = "/kmeans", 2, 100_000, 5, 20, 60


def make(points: np.ndarray) -> None:
    """Whole numbers: their sums are the same in each order."""
    random = np.random.default_rng(1)
    points[:] = random.integers(0, 10, (CENTRES, 2))[random.integers(0, CENTRES, POINTS)] * 1000
    points += np.rint(random.normal(0, 900, (POINTS, 2)))


def sums_of(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """For each centre the sums of both coordinates of the points that are nearest to it, and how many they are."""
    nearest = ((points[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    return np.stack([np.bincount(nearest, of, CENTRES) for of in (*points.T, np.ones(len(points)))], axis=1)


def go(points: np.ndarray, sums: np.ndarray, added: np.ndarray, turn: "threading.Lock | ch.Mutex", me: int) -> np.ndarray:
    """One part's work, whatever the memory and the lock are. `sums` and `added` begin with zeros, one for each round."""
    mine = np.array_split(points, PARTS)[me]
    centres = points[:CENTRES].copy()
    for round in range(ROUNDS):
        own = sums_of(mine, centres)
        with turn:
            sums[round] += own
            added[round] += 1
        until(lambda round=round: added[round] >= PARTS)
        centres = sums[round, :, :2] / np.maximum(sums[round, :, 2:], 1)
    return centres


def in_threads() -> np.ndarray:
    points, sums, added = np.empty((POINTS, 2)), np.zeros((ROUNDS, CENTRES, 3)), np.zeros(ROUNDS, "u4")
    make(points)
    turn = threading.Lock()
    with ThreadPoolExecutor(PARTS) as threads:
        return list(threads.map(lambda me: go(points, sums, added, turn, me), range(PARTS)))[0]


def on_hosts(me: int) -> np.ndarray:
    turn = ch.Mutex(f"{NAME}/turn", hosts=True)
    if me == 0:
        points = ch.array(f"{NAME}/points", (POINTS, 2), "f8", create="new", coherence="strict")
        make(points)
        sums = ch.array(f"{NAME}/sums", (ROUNDS, CENTRES, 3), "f8", create="new", coherence="strict")
        # Last: who finds it finds all of them.
        added = ch.array(f"{NAME}/added", ROUNDS, "u4", create="new", coherence="strict")
    else:
        until(lambda: is_there(f"{NAME}/added"))
        added, points, sums = ch.array(f"{NAME}/added"), ch.array(f"{NAME}/points"), ch.array(f"{NAME}/sums")
    centres = go(points, sums, added, turn, me)
    if me == 0:
        for name in ("turn", "points", "sums", "added"):
            ch.remove(f"{NAME}/{name}")
    return centres


def until(so: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not so():
        if time.monotonic() > end:
            sys.exit(f"the other part did not come within {LIMIT_S} s: `commonhold rm` what is in {NAME}, and begin anew")
        time.sleep(0.0005)


def is_there(name: str) -> bool:
    try:
        ch.stat(name)
    except ch.NotFoundError:
        return False
    return True


if __name__ == "__main__":
    which = sys.argv[1]
    print(np.rint(in_threads() if which == "alone" else on_hosts(int(which))))

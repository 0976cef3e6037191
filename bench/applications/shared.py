"""What the applications in NumPy have in common (docs/APPLICATIONS.md): arguments, memory that their activities share, and
a barrier. An activity is a process; nothing depends on where the others are.

    matrix.py --memory plain --activities 2                  two processes on plain memory
    matrix.py --memory /lab/matrix --activities 2            two processes of one host
    matrix.py --memory /lab/matrix --activities 2 --index 1  the second of two, on any host
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

PAGE = 4096


def pages(size: int) -> int:
    """Rounded up to whole pages."""
    return (size + PAGE - 1) // PAGE * PAGE


class Activities:
    """All activities of an application, as one of them sees them."""

    def __init__(self, name: str, size: int, steps: int) -> None:
        parser = argparse.ArgumentParser(prog=name)
        parser.add_argument("--memory", default="plain", help="plain, or the name of an object")
        parser.add_argument("--activities", type=int, default=1)
        parser.add_argument("--index", type=int, help="only this one is started here; 0 creates the object")
        parser.add_argument("--sync", choices=["memory", "named"], default="memory")
        parser.add_argument("--size", type=int, default=size)
        parser.add_argument("--steps", type=int, default=steps)
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--deadline", type=float, default=60, help="seconds that one waits for the others")
        self.name = name
        self.given = parser.parse_args()
        self.count = self.given.activities
        self.me = self.given.index or 0
        plain = self.given.memory == "plain"
        if not 0 <= self.me < self.count:
            parser.error(f"there are {self.count} activities, and none is number {self.me}")
        if plain and (self.given.sync == "named" or (self.given.index is not None and self.count > 1)):
            parser.error("plain memory has no name by which others find it, or locks: --memory NAME")
        self._rounds = 0
        self._barrier: Any = None

    def begin(self, size: int, fill: Callable[[np.ndarray], None]) -> np.ndarray:
        """So many bytes that all share. Returns in each activity, in a process of its own; before that, `fill` puts into
        them what they begin with, in activity 0."""
        plain = self.given.memory == "plain"
        # A page says who has filled it, and a page of each activity how many barriers it has come to.
        head = (1 + self.count) * PAGE
        whole = np.frombuffer(mmap.mmap(-1, head + size), np.uint8) if plain else None
        if self.given.index is None:
            self._fork()
        if whole is None:
            whole = self._object(head + size)
        self._words = whole[:head].view("u4").reshape(1 + self.count, PAGE // 4)[:, 0]
        if self.me == 0:
            fill(whole[head:])
        self._open_barrier()
        if self.me == 0:
            self._words[0] = 1
        self._wait("activity 0 did not begin", lambda: self._words[0] == 1)
        return whole[head:]

    def share(self, whole: int, unit: int = 1) -> slice:
        """This activity's part of so many; parts begin at multiples of unit."""
        units = -(-whole // unit)
        first, end = (min(units * n // self.count * unit, whole) for n in (self.me, self.me + 1))
        return slice(first, end)

    def barrier(self) -> None:
        """Waits until all are here."""
        self._rounds += 1
        if self._barrier is not None:
            self._barrier.wait(self.given.deadline)
            return
        self._words[1 + self.me] = self._rounds % 2**32
        self._wait(f"barrier {self._rounds}: not all came", lambda: np.all(self._words[1:] >= self._rounds))

    def start(self) -> None:
        """The time counts from here on."""
        self.barrier()
        self._begun, self._processor = time.monotonic(), time.process_time()

    def stop(self) -> None:
        """And until here."""
        self.barrier()
        self.elapsed, self.processor = time.monotonic() - self._begun, time.process_time() - self._processor

    def report(self, right: bool, **more: object) -> NoReturn:
        """Prints what this activity did, and ends. Only activity 0 knows what is right."""
        given = self.given
        line = {
            "application": self.name, "activity": self.me, "activities": self.count, "memory": given.memory,
            "sync": given.sync, "size": given.size, "steps": given.steps, "seed": given.seed,
            "elapsed_s": round(self.elapsed, 6), "processor_s": round(self.processor, 6), "right": bool(right),
        }
        sys.stdout.write(json.dumps(line | more) + "\n")
        sys.stdout.flush()
        self.barrier()  # nobody uses the names any more
        if self.me == 0 and given.memory != "plain":
            import commonhold as ch

            ch.remove(given.memory)
            if given.sync == "named":
                ch.remove(given.memory + ".barrier")
        os._exit(0 if right else 1)

    def _object(self, size: int) -> np.ndarray:
        import commonhold as ch

        if self.me == 0:
            return ch.array(self.given.memory, size, "u1", create="new", coherence="strict")
        found: list[np.ndarray] = []

        def is_there() -> bool:
            try:
                found.append(ch.array(self.given.memory, size, "u1"))
            except (ch.NotFoundError, ch.DisconnectedError):
                return False  # or this host has not joined its cluster yet
            return True

        self._wait(f"there is no {self.given.memory}", is_there)
        return found[0]

    def _open_barrier(self) -> None:
        if self.given.sync == "named":
            import commonhold as ch

            self._barrier = ch.Barrier(self.given.memory + ".barrier", self.count)

    def _fork(self) -> None:
        children = []
        for other in range(self.count):
            child = os.fork()
            if child == 0:
                self.me = other
                return
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        os._exit(0 if all(code == 0 for code in codes) else 1)

    def _wait(self, why: str, done: Callable[[], Any]) -> None:
        end, looks = time.monotonic() + self.given.deadline, 0
        while not done():
            looks += 1
            if looks > 200:
                time.sleep(min((looks - 200) * 2e-5, 5e-4))
            if time.monotonic() > end:
                sys.exit(f"{self.name}: activity {self.me}: {why} within {self.given.deadline:g} s")

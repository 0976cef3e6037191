"""Wired objects: no touch of one is a page fault."""

from __future__ import annotations

import resource

import commonhold as ch


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


def test_an_array_without_faults(name):
    mine = ch.array(name, 100_000, "f8", create=True, translation="wired")
    stat = ch.stat(name)
    assert stat.translation == "wired"
    mine[:] = 1.0  # what numpy itself takes is taken
    before = faults()
    for page in range(0, mine.size, 512):
        mine[page] = 2.0
    assert faults() - before < mine.nbytes // 4096 // 4, "a few of Python's own, and none for each page"
    again = ch.array(name)
    assert (again[::512] == 2.0).all()

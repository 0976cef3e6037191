"""Wired objects: no touch of one is a page fault."""

from __future__ import annotations

import resource

import commonhold as ch
import numpy as np
import pytest

SIZE = 100_000
PAGES = SIZE * 8 // 4096


def faults_while_filled(array) -> int:
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    array[:] = 1.0
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


def test_an_array_without_faults(name):
    warm = ch.array(f"{name}-warm", SIZE, "f8", create=True, translation="wired")
    faults_while_filled(warm)  # what numpy itself takes is taken
    paged = ch.array(f"{name}-paged", SIZE, "f8", create=True)
    assert faults_while_filled(paged) > PAGES // 2, "the first touch of a page is a fault"
    wired = ch.array(name, SIZE, "f8", create=True, translation="wired")
    assert ch.stat(name).translation == "wired"
    assert faults_while_filled(wired) < PAGES // 10
    again = ch.array(name)
    assert (again == 1.0).all()
    for other in ("-warm", "-paged"):
        ch.remove(name + other)


def test_an_object_that_may_move_is_used_under_guards(name):
    ch.create(name, SIZE, translation="wired").close()
    try:
        ch.open(name, "r+", movable=True).close()
    except ch.Error as error:
        assert "ordinary pages" in str(error)  # the machine has no huge pages
        return
    with ch.open(name, "r+", movable=True) as opened:
        with opened.guard() as guard:
            numbers = np.frombuffer(guard, "u4")
            numbers[7] = 7
            with pytest.raises(BufferError):
                guard.release()
            del numbers
        with pytest.raises(ch.InvalidError, match="released"):
            memoryview(guard)
        before = guard.generation
        ch.resize(name, SIZE + 8192)
        with opened.guard() as guard:
            assert guard.generation > before and len(guard) > SIZE + 4096
            assert np.frombuffer(guard, "u4")[7] == 7


def test_an_array_on_a_file_is_stored_by_sync_alone(name, tmp_path):
    path = tmp_path / "map"
    numbers = np.arange(SIZE, dtype="u4")
    numbers.tofile(path)
    array = ch.array(name, dtype="u4", create=True, file=path, translation="wired")
    assert ch.stat(name).translation == "wired" and (array == numbers).all()
    array[7] = 70
    assert np.fromfile(path, "u4")[7] == 7
    ch.sync(array)
    assert np.fromfile(path, "u4")[7] == 70

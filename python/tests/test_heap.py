"""Heaps from Python: arrays and buffers in them, without a copy, and what is refused."""

import os
import signal

import commonhold as ch
import numpy as np
import pytest

MIB = 1 << 20


def test_arrays_live_in_a_heap_without_a_copy(host):
    heap = ch.Heap("/py/heap", size=16 * MIB)
    samples = heap.array((100, 10), "f8")
    assert samples.shape == (100, 10) and not samples.any()
    samples[:] = np.arange(1000).reshape(100, 10)
    at = heap.offset(samples)
    other = ch.Heap("/py/heap", create=False)
    there = other.view(at, (100, 10), "f8")
    assert there.ctypes.data != samples.ctypes.data and there[99, 9] == 999
    there[0, 0] = -1
    assert samples[0, 0] == -1
    assert heap.used == (1, 8192)
    # What is shown stays mapped after the heap was closed.
    other.close()
    heap.free(samples)
    assert there[0, 1] == 1 and heap.used[0] == 0
    with pytest.raises(ch.InvalidError):
        other.allocate("int8")


def test_types_come_from_dtypes(host):
    heap = ch.Heap("/py/types", size=16 * MIB)
    record = np.dtype([("n", "i4"), ("x", "f8", 2), ("name", "S5")], align=True)
    rows = heap.array(7, record)
    rows["x"] = 1.5
    rows["name"] = b"abc"
    assert rows[6]["x"][1] == 1.5 and rows[0]["name"] == b"abc"
    assert ch._heap.type_of(record) == "{32: 0 int32, 8 float64*2, 24 bytes*5}"
    assert [ch._heap.type_of(one) for one in ("u2", "?", "f2", ">i4", "c16", "S7")] == [
        "int16", "int8", "float16", "bytes", "bytes", "bytes",
    ]  # fmt: skip
    for one in ("u1", "?", "f2", ">i4", "c16", "S7", "M8[s]"):
        made = heap.array(3, one)
        assert made.dtype == np.dtype(one) and made.nbytes == 3 * np.dtype(one).itemsize


def test_one_process_allocates_and_another_frees(host):
    heap = ch.Heap("/py/two", size=16 * MIB)
    root = heap.root("result")
    child = os.fork()
    if child == 0:
        heap.allocate_into("int64", 1000, root)
        heap.view(heap.load(root), 1000, "i8")[:] = 7
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert heap.view(heap.load(root), 1000, "i8").sum() == 7000
    heap.free_from(root)
    assert heap.load(root) == 0 and heap.used == (0, 0) and heap.check() == []


def test_what_is_no_block_is_refused(host):
    heap = ch.Heap("/py/bad", size=4 * MIB)
    with pytest.raises(ch.ExistsError):
        ch.Heap("/py/bad", create="new", size=4 * MIB)
    with pytest.raises(ch.NotFoundError):
        ch.Heap("/py/none")
    with pytest.raises(ch.InvalidError):
        ch.Heap("/py/none", create="new")
    with pytest.raises(ch.InvalidError):
        heap.free(np.zeros(10))
    numbers = heap.array(10, "i4")
    with pytest.raises(ch.InvalidError):
        heap.free(numbers[1:])
    with pytest.raises(ch.InvalidError):
        heap.view(4 * MIB - 8, 2, "f8")
    with pytest.raises(ch.Error, match="never fits"):
        heap.array(MIB, "f8")
    with pytest.raises(ch.InvalidError):
        heap.allocate("what")
    with pytest.raises(ch.InvalidError):
        heap.array(0)
    heap.free(numbers)
    with pytest.raises(ch.InvalidError):
        heap.free(numbers)
    assert heap.check() == []
    # A broken program.
    heap.store(22 * 4096, 0x123456789ABCDEF)
    assert [at for at, _ in heap.check()] == [22 * 4096]


def test_a_buffer_of_pyarrow_is_the_memory_of_the_heap(host):
    pyarrow = pytest.importorskip("pyarrow", reason="left out: pyarrow is not installed")
    heap = ch.Heap("/py/arrow", size=16 * MIB)
    numbers = heap.array(1000, "i8")
    numbers[:] = np.arange(1000)
    buffer = pyarrow.py_buffer(heap.memory(heap.offset(numbers), numbers.nbytes))
    assert buffer.address == numbers.ctypes.data
    column = pyarrow.Array.from_buffers(pyarrow.int64(), 1000, [None, buffer])
    assert column[999].as_py() == 999
    numbers[999] = -1
    assert column[999].as_py() == -1

"""Pagers written in Python, in processes of their own."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import commonhold as ch
import numpy as np
import pytest
from conftest import DEADLINE_S, wait_for

PAGE = ch.PAGE_SIZE_BYTES
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "squares_pager.py"

PAGER = """
import os, sys
import commonhold as ch
path = sys.argv[2]
def page_in(name, offset, length):
    if os.path.exists(path + ".fail"):
        raise ValueError("no page today")
    if os.path.exists(path + ".short"):
        return b"short"
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(length).ljust(length, b"\\0")
def page_out(name, offset, data):
    if os.path.exists(path + ".full"):
        raise OSError(28, "no room for " + name)
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)
        os.fsync(file.fileno())
try:
    ch.serve_pager(sys.argv[1], page_in, None if sys.argv[3:] else page_out)
except KeyboardInterrupt:
    sys.exit(7)
"""


@pytest.fixture
def pager(name, tmp_path):
    """Starts pagers; gives the process, once the host knows it."""
    path = tmp_path / "stored"
    path.write_bytes(np.arange(64 * 512, dtype="u8").tobytes())
    started = []

    def start(*words):
        process = subprocess.Popen([sys.executable, "-c", PAGER, name + "-pager", str(path), *words])
        started.append(process)
        return process

    start.path = path
    yield start
    for process in started:
        process.kill()
        process.wait()


def array_of(name, page=0, **how):
    """The object, as soon as its pager serves: `page` is one that was never touched."""
    array = ch.array(name, 64 * 512, "u8", create=True, pager=name + "-pager", pager_deadline_ms=5000, **how)
    with ch.open(name) as opened:

        def served():
            try:
                opened.read(page * PAGE, 8)
            except ch.Error as error:
                assert error.kind in ("pager", "not_found", "lost"), error
                return False
            return True

        wait_for(served)
    return array


@pytest.mark.parametrize("sync", ["ordered", "atomic"])
def test_pages_come_from_python_and_go_to_it(pager, name, sync):
    pager()
    array = array_of(name, sync=sync)
    assert np.array_equal(array, np.arange(64 * 512))
    array[1000:1010] = 5
    assert np.fromfile(pager.path, "u8")[1000] == 1000
    assert ch.sync(array) == 1
    assert (np.fromfile(pager.path, "u8")[1000:1010] == 5).all()


def test_what_a_pager_raises_is_what_a_call_says(pager, name):
    pager()
    array = array_of(name, sync="ordered")
    with ch.open(name, "r+") as opened:
        Path(f"{pager.path}.fail").touch()
        with pytest.raises(ch.Error) as raised:
            opened.read(32 * PAGE, 10)
        assert raised.value.kind == "pager"
        Path(f"{pager.path}.fail").unlink()
        Path(f"{pager.path}.short").touch()
        with pytest.raises(ch.Error):
            opened.read(40 * PAGE, 10)
        Path(f"{pager.path}.short").unlink()
        assert np.frombuffer(opened.read(32 * PAGE, 8), "u8")[0] == 32 * 512
        opened.write(b"z" * 10, 33 * PAGE)
        Path(f"{pager.path}.full").touch()
        with pytest.raises(ch.Error, match="no room for"):
            opened.sync()
        assert ch.incore(array)[33] == ch.PageState.DIRTY
        Path(f"{pager.path}.full").unlink()
        assert opened.sync() == 1, "it stayed in memory, and the next try stores it"
        assert pager.path.read_bytes()[33 * PAGE :].startswith(b"z" * 10)


def test_a_read_only_pager_refuses_changes(pager, name):
    pager("read-only")
    array = array_of(name, sync="ordered")
    array[0] = 1
    with pytest.raises(ch.Error, match="read-only"):
        ch.sync(array)
    ch.revert(array)
    assert array[0] == 0


def test_interrupt_ends_a_pager_and_another_takes_over(pager, name):
    process = pager()
    array = array_of(name, sync="ordered")
    assert array[0] == 0
    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE_S) == 7
    pager()
    array_of(name, 32, sync="ordered")
    assert array[63 * 512] == 63 * 512


def test_calls_that_wait_let_other_threads_run(name):
    """A pager in a thread of this very process: whoever waited for it with the interpreter lock would wait for ever."""
    stored, calls = bytearray(16 * PAGE), []

    def page_in(_object, offset, length):
        calls.append("in")
        return memoryview(stored)[offset : offset + length]

    def page_out(_object, offset, data):
        calls.append("out")
        stored[offset : offset + len(data)] = data

    threading.Thread(target=ch.serve_pager, args=(name + "-pager", page_in, page_out), daemon=True).start()
    opened = ch.create(name, 16 * PAGE, pager=name + "-pager", pager_deadline_ms=20000, sync="ordered")
    opened.write(b"abc", 5)
    assert opened.read(0, 10) == b"\0\0\0\0\0abc\0\0" and "in" in calls
    array = opened.array()
    ch.prefetch(array)
    wait_for(lambda: (ch.incore(array) & 0x7F >= ch.PageState.CLEAN).all())
    array[9] = 9
    assert ch.sync(array) == 1 and stored[9] == 9
    array[10] = 10
    # The last unmap is a sync, in the deallocation of the array.
    del array
    assert stored[10] == 10 and calls.count("out") >= 2


def test_the_example(name):
    process = subprocess.Popen([sys.executable, str(EXAMPLE), "serve"])
    try:
        end = time.monotonic() + DEADLINE_S
        while True:
            done = subprocess.run([sys.executable, str(EXAMPLE), "show", "3000000000"], capture_output=True, text=True)
            if done.returncode == 0 or time.monotonic() > end:
                break
        assert (done.returncode, done.stdout) == (0, f"{3000000000**2}\n"), done.stderr
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0
        ch.remove("/examples/squares")
    assert len(EXAMPLE.read_text().splitlines()) < 50
    assert os.access(EXAMPLE, os.R_OK)

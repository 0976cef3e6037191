"""Other processes: fork, spawn, pickles and handles, and one that is killed."""

import faulthandler
import multiprocessing
import os
import pickle
import signal
from concurrent.futures import ProcessPoolExecutor

import commonhold as ch
import numpy as np
import pytest
from conftest import mapped_ranges, wait_for

PAGE = ch.PAGE_SIZE_BYTES
METHODS = ["fork", "spawn", "forkserver"]


@pytest.fixture(params=["plain", "atomic"])
def array(request, name, tmp_path):
    return ch.array(name, (16, 1024), "u4", create=True, file=tmp_path / "file", sync=request.param)


def fill(shown, row, value):
    """Runs in another process, with whatever it was given to show the object."""
    match shown:
        case ch.ArrayHandle():
            target = shown.array()
        case ch.Object():
            target = shown.array()
        case ch.Mapping():
            target = np.frombuffer(shown, "u4").reshape(16, 1024)
        case str():
            target = ch.array(shown)
    target[row] = value
    if row % 2:
        ch.sync(target)


@pytest.mark.parametrize("method", METHODS)
def test_multiprocessing(array, name, tmp_path, method):
    context = multiprocessing.get_context(method)
    opened = ch.open(name, "r+")
    ways = [name, ch.handle(array), opened, opened.map()]
    processes = [context.Process(target=fill, args=(way, row, row + 100)) for row, way in enumerate(ways)]
    [process.start() for process in processes]
    [process.join(60) for process in processes]
    assert [process.exitcode for process in processes] == [0] * 4
    assert array[:, 5].tolist() == [100, 101, 102, 103] + [0] * 12
    # The parent's sync stores what children wrote: the one who ended, too.
    ch.sync(array)
    assert (np.fromfile(tmp_path / "file", "u4").reshape(16, 1024) == array).all()


def test_a_fork_child_has_its_parents_arrays(array, tmp_path):
    array[0] = 1
    child = os.fork()
    if child == 0:
        try:
            ok = (array[0] == 1).all()
            array[1] = 2
            array[2] += 3
            ok = ok and len(ch.incore(array)) == 16
            os._exit(0 if ok else 1)
        except BaseException:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert (array[1] == 2).all() and (array[2] == 3).all()
    ch.sync(array)
    on_disk = np.fromfile(tmp_path / "file", "u4").reshape(16, 1024)
    assert on_disk[:4, 7].tolist() == [1, 2, 3, 0]


def in_child(run) -> int:
    """Runs in a fork child; gives what it returned, or minus its signal."""
    child = os.fork()
    if child == 0:
        faulthandler.disable()  # some end by a signal, as they shall
        try:
            os._exit(run())
        except BaseException:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_what_a_fork_child_has_can_be_chosen(name):
    array = ch.array(name, (4, 1024), "u4", create=True, inherit="copy")
    array[:] = 5

    def writes_its_copy():
        ok = (array == 5).all()
        array[:] = 6
        return 0 if ok and (array == 6).all() else 1

    assert in_child(writes_its_copy) == 0 and (array == 5).all()
    ch.inherit(array[1:2], "none")
    assert in_child(lambda: int(array[1, 0])) == -signal.SIGSEGV
    assert in_child(lambda: int(array[2, 0])) == 5
    with ch.open(name).map(inherit="none") as mapping:
        view = memoryview(mapping)
        assert in_child(lambda: view[0]) == -signal.SIGSEGV
        mapping.inherit("share")
        assert in_child(lambda: view[0]) == 5
        mapping.inherit("copy", 4096, 4096)
        del view
    with pytest.raises(ch.InvalidError, match="share"):
        ch.inherit(array, "both")
    with ch.open(name) as opened, pytest.raises(ch.InvalidError, match="arrays and mappings"):
        ch.inherit(opened, "copy")


def test_forks_while_threads_come_and_go(array, name):
    import threading

    stop = threading.Event()

    def churn():
        while not stop.is_set():
            other = ch.array(name)
            other[15, 0] += 1
            del other

    threads = [threading.Thread(target=churn) for _ in range(3)]
    [thread.start() for thread in threads]
    try:
        for number in range(20):
            child = os.fork()
            if child == 0:
                array[3, number] = number
                mine = ch.array(name)
                os._exit(0 if mine[3, number] == number else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        [thread.join() for thread in threads]
    assert array[3, :20].tolist() == list(range(20))


def increment(handle, times):
    shown = handle.array()
    for _ in range(times):
        shown += 1
    return os.getpid()


@pytest.mark.parametrize("method", METHODS)
def test_a_pool_of_processes_each_with_a_part(array, method):
    with ProcessPoolExecutor(4, multiprocessing.get_context(method)) as pool:
        parts = [ch.handle(array[row]) for row in range(16)]
        pids = set(pool.map(increment, parts, [10] * 16))
    assert os.getpid() not in pids and (array == 10).all()


def test_a_handle_shows_the_same_part(array):
    array[:] = np.arange(16 * 1024).reshape(16, 1024)
    for view in (array, array[3], array[2:9:3, 5:100:7], array[::-1, ::-2], array.T, array.view("u2")[:, 1::2]):
        there = pickle.loads(pickle.dumps(ch.handle(view))).array()
        assert there.dtype == view.dtype and there.strides == view.strides and np.array_equal(there, view)
        there[0] += 1
        assert np.array_equal(there, view), "and not a copy of it"
    frozen = array[5]
    frozen.flags.writeable = False
    assert not ch.handle(frozen).array().flags.writeable


def test_what_has_no_place_in_an_object_has_no_handle(array, name):
    for bad in (np.zeros(3), array[0:0], array.copy(), array + 1, ch.array(name, mode="c")):
        with pytest.raises(ch.InvalidError):
            ch.handle(bad)


def test_a_pickle_means_the_object_and_not_its_name(array, name, tmp_path):
    opened = ch.open(name, "r+")
    pickles = [pickle.dumps(each) for each in (opened, opened.map(PAGE, PAGE), ch.handle(array))]
    again = pickle.loads(pickles[0])
    assert (again.mode, again.id) == ("r+", opened.id)
    part = pickle.loads(pickles[1])
    assert (part.offset, part.nbytes, part.mode) == (PAGE, PAGE, "r+")
    ch.rename(name, name + "-renamed")
    assert pickle.loads(pickle.dumps(opened)).id == opened.id, "it goes by the name it has now"
    ch.create(name, 16 * PAGE).close()
    for old in pickles:
        with pytest.raises(ch.Error, match="replaced by another") as raised:
            loaded = pickle.loads(old)
            loaded.array()
        assert raised.value.kind == "lost"
    ch.remove(name + "-renamed")
    with pytest.raises(ch.NotFoundError):
        pickle.dumps(opened)


def test_a_killed_child_takes_nothing_with_it(array, name, tmp_path):
    array[0] = 7
    ch.sync(array)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        mine = ch.array(name)
        mine[1] = 8
        ch.sync(mine)
        mine[2] = 9
        os.write(write, b"x")
        while True:
            signal.pause()
    assert os.read(read, 1) == b"x"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read), os.close(write)
    assert (array[:3, 0] == [7, 8, 9]).all()
    on_disk = np.fromfile(tmp_path / "file", "u4").reshape(16, 1024)
    assert on_disk[:2, 0].tolist() == [7, 8]
    assert ch.sync(array) is not None
    on_disk = np.fromfile(tmp_path / "file", "u4").reshape(16, 1024)
    assert on_disk[:3, 0].tolist() == [7, 8, 9]
    wait_for(lambda: mapped_ranges(name) == 1)


def test_unsynced_pages_of_a_killed_last_process(name, tmp_path, python):
    code = """
import os, sys, commonhold as ch
array = ch.array(sys.argv[1], 1000, "u8", create=True, file=sys.argv[2], sync="atomic", on_last_death=sys.argv[3])
array[:] = 1
ch.sync(array)
array[:] = 2
os.kill(os.getpid(), 9)
"""
    for what, value in (("keep", 2), ("revert", 1)):
        python(code, name, str(tmp_path / what), what, expect=-9)
        wait_for(lambda: mapped_ranges(name) == 0)
        assert (np.fromfile(tmp_path / what, "u8") == 1).all()
        array = ch.array(name)
        wait_for(lambda array=array, value=value: bool((array == value).all()))
        ch.revert(array)
        assert (array == 1).all()
        del array
        ch.remove(name)

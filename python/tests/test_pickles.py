"""Arrays that go to other processes: by reference, whatever sends them; and what does not, and why."""

import copy
import gc
import multiprocessing
import os
import pickle
import time
from concurrent.futures import ProcessPoolExecutor

import commonhold as ch
import numpy as np
import pytest
from conftest import mapped_ranges, wait_for

METHODS = ["fork", "spawn", "forkserver"]
MIB = 1 << 20


def add(array, number):
    """In another process: changes it in place, and gives it back."""
    array += number
    return array


def changed(array):
    """In another process: what kind of array it is, and whether it may be written."""
    return type(array).__name__, array.flags.writeable, array.strides


def described(array):
    return array.sum(), array.shape


@pytest.fixture
def array(name):
    return ch.zeros(name, (2048, 1024), "u4")  # 8 MiB: joblib would put an ordinary one into a file


@pytest.mark.parametrize("method", METHODS)
def test_processes_are_sent_the_same_pages(array, method):
    with ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
        back = pool.submit(add, array, 1).result()
        assert (array == 1).all() and type(back) is ch.SharedArray
        back[0, 0] = 9
        assert array[0, 0] == 9, "and so is what comes back"
        for view in (array[3], array.T, array[::-2, 5:9], array.view("u1")[7:9]):
            assert pool.submit(changed, view).result() == ("SharedArray", True, view.strides)
            before = view.copy()
            pool.submit(add, view, 3).result()
            assert (view == before + 3).all()
        frozen = array[5]
        frozen.flags.writeable = False
        assert pool.submit(changed, frozen).result()[1] is False
        assert list(pool.map(described, [array] * 20)) == [described(array)] * 20


def test_joblib_sends_the_same_pages(array):
    joblib = pytest.importorskip("joblib")
    for backend in ("loky", "multiprocessing"):
        before = int(array[0, 0])
        rows = joblib.Parallel(n_jobs=2, backend=backend)(joblib.delayed(add)(array[n::4], 1) for n in range(4))
        assert (array == before + 1).all(), backend
        assert len(rows) == 4


def test_dask_workers_are_sent_the_same_pages(array):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert client.submit(changed, array).result()[0] == "SharedArray"
        client.submit(add, array[1], 7).result()
        assert (array[1] == 7).all() and not array[0].any()
        [held] = client.scatter([array])
        client.submit(add, held, 1).result()
        assert (array[0] == 1).all()


def test_what_is_computed_is_an_ordinary_array(array):
    for made in (array + 1, -array, np.sqrt(array), array > 3, array.sum(axis=0), np.array(array), array.astype("f8") * 2):
        assert type(made) is np.ndarray
    assert type(array.sum()) is np.uint64 and type(array[0, 0]) is np.uint32 and type(array.max()) is np.uint32
    same = array
    array += 1
    assert array is same and type(np.add(array, 1, out=array)) is ch.SharedArray
    assert type(array[3:5]) is ch.SharedArray and isinstance(array, np.ndarray)
    assert float(array[:1, :1].mean()) == 2.0


def test_what_has_no_place_is_pickled_by_content(array, name):
    array[0] = 5
    for own in (array.copy(), copy.deepcopy(array), array[[0, 2]], array[0:0], ch.array(name, mode="c")):
        again = pickle.loads(pickle.dumps(own))
        assert type(again) is np.ndarray and np.array_equal(again, own)
        again[0:1] = 7
        assert not (array == 7).any()


def test_the_array_of_an_object_without_a_name_says_why_it_is_not_sent(array, name):
    ch.remove(name)
    with pytest.raises(ch.NotFoundError, match=r"array\.copy"):
        pickle.dumps(array)
    assert pickle.loads(pickle.dumps(array.copy())).shape == array.shape


def test_a_pickle_of_another_object_of_that_name_is_refused(name):
    array = ch.zeros(name, 1024)
    sent = pickle.dumps(array)
    del array
    gc.collect()
    ch.remove(name)
    with pytest.raises(ch.NotFoundError):
        pickle.loads(sent)
    ch.zeros(name, 4)
    with pytest.raises(ch.Error, match="replaced"):
        pickle.loads(sent)


def receive_and_tell(sent):
    """In another process: how many ranges show the object when it was received, and some time after it was dropped."""
    received = pickle.loads(sent)
    where = received.__array_interface__["data"][0]
    again = pickle.loads(sent)
    same = again.__array_interface__["data"][0] == where
    del received, again
    gc.collect()
    third = pickle.loads(sent)
    same = same and third.__array_interface__["data"][0] == where
    del third
    shown = lambda: sum(f"{where:x}-" in line for line in open("/proc/self/maps"))
    before, deadline = shown(), time.monotonic() + 20
    while shown() and time.monotonic() < deadline:
        time.sleep(0.1)
    return same, before, shown()


def test_what_is_sent_again_is_mapped_once_and_not_kept_for_good(array):
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(receive_and_tell, pickle.dumps(array)).result() == (True, 1, 0)


def test_a_fork_child_does_not_use_what_its_parent_received(array, name):
    private = ch.array(name, inherit="none")
    sent = pickle.dumps(private)
    assert pickle.loads(sent)[0, 0] == 0
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if pickle.loads(sent)[0, 0] == 0 else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

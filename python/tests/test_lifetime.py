"""An array may be used after anything: its pages stay mapped until nothing shows them, and go then."""

import gc
import random
import signal
import threading

import commonhold as ch
import numpy as np
import pytest
from conftest import mapped_ranges, wait_for

PAGE = ch.PAGE_SIZE_BYTES
KINDS = ["plain", "atomic"]


@pytest.fixture(params=KINDS)
def opened(request, name, tmp_path):
    made = ch.create(name, 64 * PAGE, file=tmp_path / "file", sync=request.param)
    yield made
    made.close()


def goes(name):
    """Waits until no mapping is left (the host learns of direct ones a moment later)."""
    gc.collect()
    wait_for(lambda: mapped_ranges(name) == 0)


def shapes(mapping):
    """All the ways to make something of a mapping that shows its memory."""
    yield np.frombuffer(mapping, "u1")
    yield np.frombuffer(memoryview(mapping), "u1")
    yield np.ndarray(64 * PAGE, "u1", mapping)
    yield np.ndarray(64 * PAGE, "u1", memoryview(mapping))
    yield np.asarray(mapping)
    yield np.asarray(memoryview(mapping))
    yield memoryview(mapping)
    yield memoryview(mapping)[5:]
    yield np.ndarray(PAGE, "u1", mapping, offset=PAGE)[::2].reshape(2, -1).T
    yield np.ndarray(8, "u8", mapping.pages)


@pytest.mark.parametrize("which", range(10))
def test_whatever_shows_a_mapping_outlives_it(opened, name, which):
    opened.write(b"\7" * 64 * PAGE)
    mapping = opened.map()
    view = list(shapes(mapping))[which]
    gc.collect()
    assert mapped_ranges(name) == 1
    mapping.close()
    assert mapping.closed
    # Were it unmapped, this would end the interpreter.
    assert bytes(view)[:2] == b"\7\7"
    del mapping
    gc.collect()
    assert bytes(view)[-1:] == b"\7" and mapped_ranges(name) == 1
    opened.close()
    ch.remove(name)
    if isinstance(view, memoryview):
        assert bytes(view)[:1] == b"\7"
    else:
        view[...] = 9
        assert bytes(view)[:1] == b"\11"
    del view
    gc.collect()


@pytest.mark.parametrize("use", ["nothing", "memoryview", "frombuffer", "bytes", "pages"])
def test_close_unmaps_at_once_when_nothing_shows_it(opened, name, use):
    mapping = opened.map()
    match use:
        case "memoryview":
            memoryview(mapping).release()
        case "frombuffer":
            np.frombuffer(mapping, "u1")[0] = 1
        case "bytes":
            bytes(mapping)
        case "pages":
            mapping.pages.object_name()
    mapping.close()
    goes(name)
    assert mapping.closed, "and the mapping is still here"


def test_an_address_that_numpy_took_is_kept_as_long_as_the_mapping(opened, name):
    mapping = opened.map()
    array = np.ndarray(64 * PAGE, "u1", mapping)
    mapping.close()
    array[0] = 1
    assert mapped_ranges(name) == 1
    del mapping
    assert array[0] == 1 and mapped_ranges(name) == 1
    del array
    goes(name)


def test_the_last_view_unmaps(opened, name):
    array = opened.array("u4")
    slices = [array[i * 7 :: 3].reshape(-1) for i in range(20)]
    views = [memoryview(each) for each in slices[::2]]
    del array
    random.Random(1).shuffle(slices)
    while slices:
        slices.pop()[0] += 1
    assert mapped_ranges(name) == 1
    del views
    goes(name)


def test_a_closed_mapping_or_object_says_so(opened):
    mapping = opened.map()
    mapping.close()
    mapping.close()
    with pytest.raises(ch.InvalidError, match="closed"):
        mapping.sync()
    with pytest.raises((ch.InvalidError, BufferError), match="closed"):
        memoryview(mapping)
    opened.close()
    opened.close()
    assert opened.closed and "closed" in repr(opened)
    for use in (opened.array, opened.map, opened.stat, opened.sync, lambda: opened.description, opened.read):
        with pytest.raises(ch.InvalidError, match="closed"):
            use()


def test_mappings_in_parts_and_read_only(opened, name):
    with opened.map(PAGE, 2 * PAGE) as part, opened.map(mode="r") as whole:
        assert len(part) == part.nbytes == 2 * PAGE and part.offset == PAGE and part.mode == "r+"
        view = memoryview(part)
        view[:3] = b"abc"
        assert bytes(memoryview(whole)[PAGE : PAGE + 3]) == b"abc" and memoryview(whole).readonly
        with pytest.raises(TypeError):
            memoryview(whole)[0] = 1
        with pytest.raises(ch.InvalidError):
            opened.map(5)
        with pytest.raises(ch.InvalidError):
            opened.map(0, 65 * PAGE)
        with pytest.raises(ch.InvalidError):
            opened.map(0, 0)
    del view
    goes(name)


def test_a_removed_object_goes_when_its_last_array_does(name):
    array = ch.array(name, 1000, "u8", create=True)
    ch.remove(name)
    with pytest.raises(FileNotFoundError):
        ch.array(name)
    array[:] = 5
    other = ch.array(name, 10, "u1", create=True)
    assert not other.any() and (array == 5).all()


def test_garbage_in_cycles(name, tmp_path):
    """Arrays, mappings and objects in reference cycles, dropped in any order that the collector likes."""
    ch.create(name, 8 * PAGE, file=tmp_path / "file", sync="atomic").close()
    random_numbers = random.Random(7)
    for round_number in range(100):
        ring = []
        for _ in range(8):
            opened = ch.open(name, "r+")
            mapping = opened.map()
            node = [opened, mapping, np.frombuffer(mapping, "u8"), opened.array(), memoryview(mapping), ring]
            node.append(np.ndarray(16, "u8", mapping))
            random_numbers.shuffle(node)
            ring.append(node)
            if random_numbers.random() < 0.5:
                mapping.close()
            if random_numbers.random() < 0.5:
                opened.close()
        arrays = [thing for node in ring for thing in node if isinstance(thing, np.ndarray)]
        keep = random_numbers.sample(arrays, 3)
        del ring, node, opened, mapping, arrays
        if round_number % 4 == 0:
            gc.collect()
        for each in keep:
            each[3] += 1
        del keep, each
    goes(name)


def test_threads(name, tmp_path):
    """Arrays come and go, and are synced, in many threads; what one made is dropped by another."""
    ch.array(name, (8, PAGE // 8), "u8", create=True, file=tmp_path / "file", sync="atomic")
    failures, pool, lock = [], [], threading.Lock()

    def work(number: int) -> None:
        try:
            for step in range(60):
                array = ch.array(name)
                array[number] = step
                with lock:
                    pool.append(array[number])
                    dropped = pool.pop(0) if len(pool) > 16 else None
                if step % 10 == number:
                    ch.sync(array)
                assert (array[number] == step).all()
                del array, dropped
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failures
    pool.clear()
    final = ch.array(name)
    assert (final == 59).all()
    ch.sync(final)
    assert (np.fromfile(tmp_path / "file", "u8") == 59).all()
    del final
    goes(name)


@pytest.mark.parametrize("sync", KINDS)
def test_an_interpreter_may_end_without_closing_anything(name, tmp_path, python, sync):
    path = tmp_path / "file"
    python(
        """
import sys, threading, time
import commonhold as ch, numpy as np
name, path, sync = sys.argv[1:]
array = ch.array(name, 5000, "u8", create=True, file=path, sync=sync)
opened = ch.open(name, "r+")
mapping = opened.map()
views = [np.frombuffer(mapping, "u8"), memoryview(mapping), np.ndarray(10, "u8", mapping)]
cycle = [array, views]; cycle.append(cycle)
array[:] = 11
def touch():
    while True: array[4999] = 11; time.sleep(0.001)
threading.Thread(target=touch, daemon=True).start()
sys.modules["kept"] = cycle
""",
        name,
        str(path),
        sync,
    )
    # The orderly end of the last process that had it mapped is a sync.
    assert (np.fromfile(path, "u8") == 11).all()
    wait_for(lambda: mapped_ranges(name) == 0)


def test_touching_what_was_shrunk_away_is_sigbus_and_nothing_else(name, python):
    ch.array(name, 4 * PAGE, "u1", create=True)
    code = """
import sys, commonhold as ch
array = ch.array(sys.argv[1])
ch.resize(sys.argv[1], 4096)
array[100] = 1
print("here", flush=True)
array[3 * 4096] = 1
print("not here", flush=True)
"""
    done = python(code, name, expect=-signal.SIGBUS)
    assert done.stdout == "here\n"
    assert ch.array(name, PAGE)[100] == 1

"""sync, lock, unlock, incore, prefetch and revert, on arrays, slices, mappings and objects."""

import commonhold as ch
import numpy as np
import pytest

PAGE = ch.PAGE_SIZE_BYTES
DIRTY, CLEAN, ABSENT = ch.PageState.DIRTY, ch.PageState.CLEAN, ch.PageState.ABSENT


@pytest.fixture
def atomic(name, tmp_path):
    """An array of 16 pages with atomic sync, and its file."""
    path = tmp_path / "file"
    path.write_bytes(bytes(16 * PAGE))
    return ch.array(name, dtype="u4", create=True, file=path, sync="atomic"), path


def test_atomic_sync_writes_the_file_then_and_not_before(atomic):
    array, path = atomic
    array[0], array[5000] = 1, 2
    assert path.read_bytes() == bytes(16 * PAGE)
    assert ch.sync(array) == 2
    assert np.array_equal(np.fromfile(path, "u4"), array)
    assert ch.sync(array) == 0, "nothing was written since"
    array[0] = 9
    assert np.fromfile(path, "u4")[0] == 1


def test_ordered_and_plain_reach_the_file_by_sync(name, tmp_path):
    for mode in ("ordered", "plain"):
        path = tmp_path / mode
        array = ch.array(name, 2000, "f8", create=True, file=path, sync=mode)
        array[:] = 1.5
        ch.sync(array)
        assert (np.fromfile(path) == 1.5).all()
        ch.remove(name)


def test_a_slice_syncs_its_pages_alone(atomic):
    array, path = atomic
    array[:] = 1
    assert ch.sync(array[1024:2048]) == 1
    assert ch.sync(array[3 * 1024 + 5 : 3 * 1024 + 6]) == 1
    on_disk = np.fromfile(path, "u4").reshape(16, 1024).any(axis=1)
    assert np.flatnonzero(on_disk).tolist() == [1, 3]
    states = ch.incore(array)
    assert states.dtype == "u1" and len(states) == 16
    assert np.flatnonzero(states == CLEAN).tolist() == [1, 3] and (np.delete(states, [1, 3]) == DIRTY).all()


def test_views_that_are_not_in_one_run_cover_their_range(atomic):
    array, _ = atomic
    rows = array.reshape(16, 1024)
    rows[:] = 1
    assert len(ch.incore(rows[2:7:2])) == 5
    assert len(ch.incore(rows[::-1])) == 16 and len(ch.incore(rows[6:2:-2, ::-1])) == 3
    assert len(ch.incore(rows.T[5])) == 16 and len(ch.incore(rows[3, 1023:])) == 1
    assert ch.sync(rows[2:7:2]) == 5
    assert ch.sync(memoryview(rows[10])) == 1
    assert ch.sync(rows[11].view("M8[ns]")) == 1, "of any dtype"
    assert ch.sync(rows) == 9


def test_objects_and_mappings_are_ranges_too(atomic, name):
    array, path = atomic
    with ch.open(name, "r+") as opened, opened.map(4 * PAGE, 2 * PAGE) as mapping:
        array[:] = 3
        assert mapping.sync(PAGE, 1) == 1 and ch.sync(mapping) == 1
        assert opened.sync(0, PAGE) == 1 and ch.sync(opened) == 13
        assert len(ch.incore(opened)) == 16 and len(mapping.incore()) == 2 and opened.incore(PAGE, PAGE)[0] == CLEAN
        with pytest.raises(ch.InvalidError):
            mapping.sync(2 * PAGE)
        with pytest.raises(ch.InvalidError):
            mapping.sync(PAGE, PAGE + 1)
    assert (np.fromfile(path, "u4") == 3).all()


def test_locked_pages_stay_until_a_sync(atomic):
    array, _ = atomic
    array[0] = 1
    with ch.locked(array[:1024]) as pinned:
        assert pinned in (True, False)
        assert ch.incore(array)[0] == DIRTY | ch.LOCKED and not ch.incore(array)[1] & ch.LOCKED
    assert not ch.incore(array)[0] & ch.LOCKED
    ch.lock(array)
    assert (ch.incore(array) & ch.LOCKED).all()
    ch.unlock(array)
    assert not (ch.incore(array) & ch.LOCKED).any()


def test_a_lock_on_a_direct_object_is_refused_with_the_reason(name):
    array = ch.array(name, 10, "u8", create=True)
    with pytest.raises(ch.Error, match="direct object") as raised:
        ch.lock(array)
    assert raised.value.kind == "unsupported" and raised.value.errno == 95


def test_revert_drops_what_was_not_synced(atomic, name):
    array, _ = atomic
    array[:] = 1
    ch.sync(array)
    array[:] = 2
    assert ch.revert(array[5:9]) == 16 and (array == 1).all()
    array[0] = 5
    assert ch.revert(name) == 1 and array[0] == 1
    array[0] = 5
    with ch.open(name, "r+") as opened, opened.map() as mapping:
        assert ch.revert(mapping) == 1
        array[0] = 5
        assert ch.revert(opened) == 1 and array[0] == 1


def test_who_opened_it_for_reading_reverts_nothing(atomic, name):
    array, _ = atomic
    array[0] = 5
    with ch.open(name, "r") as opened, opened.map() as mapping:
        for target in (opened, mapping, ch.array(name, mode="r")):
            with pytest.raises(ch.Error, match="open it for writing") as raised:
                ch.revert(target)
            assert raised.value.kind == "permission"
    assert array[0] == 5


def test_prefetch_brings_pages_in(name, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 64 * PAGE)
    array = ch.array(name, create=True, file=path, sync="ordered")
    assert (ch.incore(array) == ABSENT).all()
    ch.prefetch(array[: 8 * PAGE])
    from conftest import wait_for

    wait_for(lambda: (ch.incore(array[: 8 * PAGE]) == CLEAN).all())
    assert array[5] == ord("x")


def test_a_freeze_needs_a_freezable_object(name, tmp_path):
    array = ch.array(name, 1000, "u8", create=True, file=tmp_path / "a", sync="atomic")
    with pytest.raises(ch.Error, match="freezable"):
        ch.sync(array, freeze=True)
    ch.remove(name)
    array = ch.array(name, 1000, "u8", create=True, file=tmp_path / "b", sync="atomic", freezable=True)
    array[:] = 4
    assert ch.sync(array, freeze=True) == 2 and (np.fromfile(tmp_path / "b", "u8") == 4).all()


def test_what_is_on_no_object_is_refused(name):
    for call in (ch.sync, ch.lock, ch.unlock, ch.incore, ch.prefetch):
        with pytest.raises(ch.NotFoundError, match="no object is mapped"):
            call(np.zeros(10))
        with pytest.raises(TypeError):
            call("not memory")
        with pytest.raises(ch.InvalidError, match="empty"):
            call(ch.array(name, 10, create=True)[3:3])
    with pytest.raises(ch.InvalidError):
        ch.revert(np.zeros(10))


def test_a_read_only_view_can_be_synced(atomic, name):
    array, path = atomic
    reader = ch.array(name, mode="r")
    array[7] = 7
    assert reader[7] == 7 and ch.sync(reader) == 1 and np.fromfile(path, "u4")[7] == 7


def test_copies_in_and_out(atomic, name):
    with ch.open(name, "r+") as opened:
        opened.write(b"hello", 3)
        opened.write(np.arange(4, dtype="u1"), PAGE - 2)
        assert opened.read(3, 5) == b"hello" and opened.read(PAGE - 2, 4) == bytes(range(4))
        assert len(opened.read()) == 16 * PAGE and opened.read(16 * PAGE - 1) == b"\0"
        for offset, length in ((16 * PAGE, 1), (0, 16 * PAGE + 1)):
            with pytest.raises(ch.InvalidError):
                opened.read(offset, length)
    with ch.open(name) as opened, pytest.raises(PermissionError):
        opened.write(b"x")

"""`array`: what dtype, shape and mode mean, and what is refused."""

import pickle
import threading

import commonhold as ch
import numpy as np
import pytest
from commonhold._handles import array_of
from conftest import mapped_ranges

PAGE = ch.PAGE_SIZE_BYTES


def test_a_new_array_is_zero_and_others_see_what_is_written(name):
    mine = ch.array(name, (100, 3), "u4", create=True)
    assert mine.shape == (100, 3) and mine.dtype == "u4" and mine.flags.writeable and not mine.any()
    mine[7] = 1, 2, 3
    assert ch.array(name)[7].tolist() == [1, 2, 3]
    mine[8, 1] += 5
    assert ch.array(name, dtype="u4")[8, 1] == 5


def test_the_object_remembers_dtype_and_shape(name):
    ch.array(name, (4, 5), ">f8", create=True)
    assert ch.stat(name).description == "numpy:>f8:(-1, 5)"
    again = ch.array(name)
    assert again.dtype == ">f8" and again.shape == (4, 5)
    assert ch.array(name, 20).shape == (20,), "another shape of the same elements is no other type"


def test_another_dtype_is_refused_and_both_are_named(name):
    ch.array(name, 16, "u4", create=True)
    with pytest.raises(ch.MismatchError, match="<u4.*<f8") as raised:
        ch.array(name, dtype="f8")
    assert isinstance(raised.value, TypeError) and isinstance(raised.value, OSError)
    assert raised.value.kind == "mismatch" and raised.value.errno == 91
    with pytest.raises(ch.MismatchError), ch.open(name) as opened:
        opened.array("i4")
    with pytest.raises(ch.MismatchError):
        ch.array(name, 16, "f4", create=True)
    assert mapped_ranges(name) == 0


def test_with_a_dtype_alone_the_shape_is_what_fits(name):
    ch.create(name, 1003).close()
    assert ch.array(name, dtype="u4").shape == (250,)
    assert ch.array(name).dtype == "u1" and ch.array(name).shape == (1003,)
    assert ch.array(name, dtype="f8", offset=PAGE // 8 + 1).shape == ((1003 - 513) // 8,)


def test_an_array_may_begin_anywhere(name):
    ch.create(name, 3 * PAGE).close()
    whole = ch.array(name)
    whole[:] = np.arange(3 * PAGE) % 251
    for offset in (1, 8, PAGE - 3, PAGE, PAGE + 5, 2 * PAGE + 1):
        part = ch.array(name, 16, "u1", offset=offset)
        assert part.tolist() == whole[offset : offset + 16].tolist()
    part[0] = 255
    assert whole[2 * PAGE + 1] == 255


def test_what_does_not_fit_is_refused(name):
    ch.array(name, 1000, "u4", create=True)
    with pytest.raises(ch.MismatchError, match="4004 bytes.*has 4000"):
        ch.array(name, 1001)
    for bad in ({"shape": -2}, {"shape": 0}, {"shape": (3, 0)}, {"offset": -8}, {"offset": 4000, "shape": 1}):
        with pytest.raises((ch.InvalidError, ch.MismatchError)):
            ch.array(name, **bad)
    with pytest.raises(ch.InvalidError, match="mode"):
        ch.array(name, mode="w")
    with pytest.raises(ch.Error):
        ch.array(name, 1 << 61, "u8")
    with pytest.raises(TypeError):
        ch.array(name, 2.5)
    assert mapped_ranges(name) == 0


def test_a_resized_object_has_its_new_size(name):
    old = ch.array(name, PAGE, "u1", create=True)
    ch.resize(name, 2 * PAGE)
    assert ch.array(name, 2 * PAGE).nbytes == 2 * PAGE and old.nbytes == PAGE
    ch.resize(name, 100)
    with pytest.raises(ch.MismatchError, match="has 100"):
        ch.array(name, 101)
    assert ch.array(name).nbytes == ch.array(name, 100).nbytes == 100


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_follows_the_size_of_its_object(name, order):
    rows = lambda: ch.array(name) if order == "C" else ch.array(name).T  # noqa: E731
    made = ch.array(name, (10, 3) if order == "C" else (3, 10), "f8", create=True, order=order)
    made[...] = np.arange(30).reshape(made.shape)
    ch.resize(name, 20 * 24)
    assert rows().shape == (20, 3) and rows()[:10].tolist() == (made if order == "C" else made.T).tolist()
    assert not rows()[10:].any() and made.shape == ((10, 3) if order == "C" else (3, 10)), "what is mapped keeps its shape"
    assert ch.array(name, ch.array(name).shape, "f8", create=True, order=order).size == 60
    with pytest.raises(ch.MismatchError, match="is there already with shape"):
        ch.array(name, made.shape, "f8", create=True, order=order)
    del made
    ch.resize(name, 5 * 24 + 7)
    assert rows().shape == (5, 3), "whole rows"
    ch.resize(name, 23)
    with pytest.raises(ch.InvalidError, match="at least one element"):
        ch.array(name)


def test_an_array_in_a_larger_object_keeps_its_shape(name):
    ch.array(name, (10, 3), "f8", create=True, size=4096)
    ch.resize(name, 8192)
    assert ch.stat(name).description == "numpy:<f8:(10, 3)" and ch.array(name).shape == (10, 3)
    ch.array(name + "-behind", (-1, 3), "f8", create=True, size=4096 + 72, offset=4096)
    ch.resize(name + "-behind", 4096 + 144)
    assert ch.array(name + "-behind", offset=4096).shape == (6, 3)


@pytest.mark.parametrize("sync", ["plain", "ordered"])
def test_what_is_mapped_without_a_length_has_the_size_of_now(name, sync):
    opened = ch.create(name, PAGE, sync=sync)
    ch.resize(name, 2 * PAGE)
    assert opened.size_bytes == PAGE, "as it was known"
    with opened.map() as pages:
        assert len(pages) == 2 * PAGE
    ch.resize(name, 3 * PAGE)
    assert len(opened.read()) == 3 * PAGE
    ch.resize(name, 4 * PAGE)
    assert opened.array().nbytes == 4 * PAGE
    ch.resize(name, 100)
    assert opened.array().nbytes == 100
    ch.resize(name, 200)
    with opened.map() as pages:
        assert len(pages) == 200


def test_elements_with_python_objects_are_refused(name):
    for dtype in (object, [("a", "u4"), ("b", object)], "S"):
        with pytest.raises(TypeError):
            ch.array(name, 10, dtype, create=True)
    with pytest.raises(ch.NotFoundError):
        ch.stat(name)


@pytest.mark.parametrize(
    "dtype",
    [
        "?", "i1", "<u2", ">i8", "f2", "c16", "S5", "U3", "V7", "M8[ns]", "m8[s]",
        [("x", "<f4"), ("y", ">f4", (2, 3))],
        [("a:b", "u1"), ("when", "M8[us]")],
        np.dtype([("a", "u1"), ("b", "u8")], align=True),
    ],
)  # fmt: skip
def test_dtypes_are_remembered_whole(name, dtype):
    made = ch.array(name, 5, dtype, create=True)
    assert ch.array(name).dtype == np.dtype(dtype) == made.dtype
    made[2] = made[3]
    assert ch.sync(made) == 0, "an anonymous object promises nothing past the host"


def test_tags_of_others(name):
    ch.create(name, 800, description="<f8").close()
    assert ch.array(name).dtype == "<f8"
    with pytest.raises(ch.MismatchError):
        ch.array(name, dtype="u8")
    ch.remove(name)
    ch.create(name, 800, description="mesh, version 3").close()
    assert ch.array(name).dtype == "u1" and ch.array(name, dtype="i4").shape == (200,)
    ch.remove(name)
    ch.create(name, 800, description="numpy:<q9:(1,").close()
    with pytest.raises(ch.MismatchError):
        ch.array(name)


def test_modes(name):
    mine = ch.array(name, 10, "u4", create=True)
    mine[3] = 33
    read = ch.array(name, mode="r")
    assert read[3] == 33 and not read.flags.writeable
    with pytest.raises(ValueError):
        read[3] = 1
    with pytest.raises(ValueError):
        read.flags.writeable = True
    copy = ch.array(name, mode="c")
    copy[3] = 1
    assert mine[3] == read[3] == 33 and copy[3] == 1
    with ch.open(name, "r") as opened:
        assert not opened.array().flags.writeable
        with pytest.raises(PermissionError):
            opened.array(mode="r+")
        assert opened.array(mode="c").flags.writeable


@pytest.mark.parametrize("sync", ["plain", "ordered"])
def test_orders_and_shapes(name, sync):
    mine = ch.array(name, (3, 4, 5), "i8", create=True, order="F", sync=sync)
    mine[...] = np.arange(60).reshape(3, 4, 5)
    assert mine.flags.f_contiguous and (ch.array(name, order="F") == mine).all()
    assert ch.array(name, 60).tolist() == mine.ravel(order="K").tolist()


def test_the_order_is_recorded(name):
    mine = ch.array(name, (3, 4), "i8", create=True, order="F")
    mine[...] = np.arange(12).reshape(3, 4)
    assert ch.stat(name).description == "numpy:<i8:(3, -1):F"
    with ch.open(name) as opened:
        for there in (ch.array(name), ch.array(name, order="F"), opened.array(), ch.array(name, (3, 2))):
            assert there.flags.f_contiguous and (there == mine[:, : there.shape[1]]).all()
    assert ch.handle(mine).array().tolist() == mine.tolist()
    with pytest.raises(ch.MismatchError, match="order F"):
        ch.array(name, order="C")
    ch.array(name + "-c", (3, 4), "i8", create=True)
    with pytest.raises(ch.MismatchError, match="order C"):
        ch.array(name + "-c", order="F")
    with pytest.raises(ch.InvalidError, match="order"):
        ch.array(name, order="K")
    ch.array(name + "-line", 12, "i8", create=True, order="F")
    assert ch.stat(name + "-line").description == "numpy:<i8:(-1,)", "of one dimension they are the same"


def test_what_is_there_is_not_taken_for_something_else(name):
    ch.array(name, (4, 5), "u4", create=True)
    ch.array(name, (4, 5), "u4", create=True)[0] = 1
    for shape, dtype, how in (
        ((5, 4), "u4", {}), (20, "u4", {}), ((4, 5), "f4", {}), ((4, 5), None, {}), ((4, 5), "u4", {"order": "F"}),
    ):  # fmt: skip
        with pytest.raises(ch.MismatchError, match="is there already"):
            ch.array(name, shape, dtype, create=True, **how)
    assert ch.array(name, (5, 4), "u4").shape == (5, 4), "who does not create may look at it as they like"
    ch.create(name + "-bytes", 80).close()
    with pytest.raises(ch.MismatchError, match="is there already"):
        ch.array(name + "-bytes", (4, 5), "u4", create=True)
    assert ch.array(name + "-bytes", 80, create=True).dtype == "u1"


def test_creating(name, tmp_path):
    first = ch.array(name, 10, "u4", create="new")
    first[1] = 5
    assert ch.array(name, 10, "u4", create=True)[1] == 5
    with pytest.raises(FileExistsError):
        ch.array(name, 10, "u4", create="new")
    with pytest.raises(FileNotFoundError):
        ch.array(name + "x")
    with pytest.raises(TypeError, match="create=True"):
        ch.array(name, sync="atomic")
    with pytest.raises(ch.InvalidError):
        ch.array(name + "x", 10, "u4", create=True, size=39)
    with pytest.raises(ch.InvalidError):
        ch.array(name + "x", create=True)
    with pytest.raises(ch.InvalidError, match="sync"):
        ch.array(name + "x", 1, create=True, sync="sometimes")
    with pytest.raises(ch.NotFoundError, match="give the size"):
        ch.create(name + "x", file=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_file_is_an_array_in_place(name, tmp_path):
    path = tmp_path / "data"
    np.arange(3000, dtype="u4").tofile(path)
    mine = ch.array(name, dtype="u4", create=True, file=path)
    assert mine.shape == (3000,) and mine[2999] == 2999 and ch.stat(name).description == "numpy:<u4:(-1,)"
    mine[5] = 55
    ch.sync(mine)
    assert np.fromfile(path, "u4")[5] == 55
    ch.remove(name)
    assert path.stat().st_size == 12000, "a backing file is never deleted"
    del mine
    with path.open("r+b") as opened:
        assert ch.array(name, dtype="u4", create=True, file=opened, sync="atomic")[5] == 55


def test_a_file_made_for_an_object_that_is_refused_goes_again(name, tmp_path):
    path = tmp_path / "made"
    assert ch.array(name, 100, "u8", create=True, file=path).nbytes == path.stat().st_size == 800
    with pytest.raises(FileExistsError):
        ch.create(name, 800, file=tmp_path / "other")
    assert not (tmp_path / "other").exists() and path.exists()


def test_one_of_many_creators_wins_and_all_share(name):
    arrays, barrier = [], threading.Barrier(8)

    def create():
        barrier.wait()
        arrays.append(ch.array(name, 100, "u8", create=True))

    threads = [threading.Thread(target=create) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    arrays[0][42] = 7
    assert len(arrays) == 8 and all(each[42] == 7 for each in arrays)


def test_an_array_of_no_dimension(name):
    ch.array(name, (), "f8", create=True)[...] = 2.5
    assert ch.array(name).shape == () and ch.array(name) == 2.5


def test_a_dtype_of_many_fields_is_recorded(name):
    wide = np.dtype([(f"measured_{number}", "<f8") for number in range(150)])
    ch.array(name, 10, wide, create=True)["measured_149"][9] = 2.5
    assert ch.array(name).dtype == wide and ch.array(name)["measured_149"][9] == 2.5
    assert 256 < len(ch.stat(name).description) <= 4096
    wider = np.dtype([(f"measured_{number}", "<f8") for number in range(300)])
    with pytest.raises(TypeError, match=r"too long to be recorded \(4096 bytes\)"):
        ch.array(name + "-wider", 10, wider, create=True)
    assert not ch.exists(name + "-wider")


REFERENCES = ["|O", "|O8", "=O8", "object", "i4,O", "[('a', '|O')]", "('|O', (2,))", "|T"]
NONSENSE = ["numpy:|S0:(4,)", "numpy:<f8:" + "-" * 4000, "numpy:<f8:(True,)", f"numpy:<f8:{(1,) * 65}", "numpy:('|S0', (2,)):(1,)"]


@pytest.mark.parametrize("description", [f"numpy:{dtype}:(4,)" for dtype in REFERENCES] + NONSENSE)
def test_what_others_say_of_an_object_runs_no_code(name, description):
    ch.create(name, 4096, description=description).close()
    with pytest.raises(ch.MismatchError, match="no NumPy type that this version knows"):
        ch.array(name)
    with pytest.raises(ch.MismatchError):
        ch.array(name, dtype="u1")
    with ch.open(name) as opened, opened.map() as mapping:
        assert bytes(memoryview(mapping)[:4]) == bytes(4)


@pytest.mark.parametrize("dtype", ["O", [("a", "O")], np.dtypes.StringDType() if hasattr(np.dtypes, "StringDType") else "O"])
def test_no_array_of_references_is_made_or_unpickled(name, dtype):
    with ch.create(name, 4096) as opened:
        with pytest.raises(TypeError, match="references"):
            opened.array(dtype)
        place = list(pickle.loads(pickle.dumps(ch.array(name))).__reduce_ex__(5)[1])
        place[7] = dtype
        with pytest.raises(TypeError, match="references"):
            array_of(*place)

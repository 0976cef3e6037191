"""Habits from NumPy, `mmap` and `shared_memory` that hold here."""

import pathlib
import re
import subprocess
import sys

import commonhold as ch
import numpy as np
import pytest


def test_a_new_array_by_its_content(name):
    for content in (np.arange(12.0).reshape(3, 4), np.asfortranarray(np.arange(6, dtype="i2").reshape(2, 3)), [1, 2, 3]):
        made = ch.from_array(name, content)
        assert np.array_equal(made, content) and np.array_equal(ch.array(name), content)
        assert made.flags.f_contiguous == np.asarray(content).flags.f_contiguous
        with pytest.raises(ch.ExistsError):
            ch.from_array(name, content)
        ch.remove(name)
    scalar = ch.from_array(name, 7)
    assert scalar.tolist() == [7]


def test_an_array_that_cannot_be_filled_leaves_nothing(name):
    class Bad:
        def __array__(self, *_args, **_kinds):
            return np.array([object()])

    with pytest.raises(TypeError):
        ch.from_array(name, Bad())
    assert not ch.exists(name)


def test_zeros_are_new(name):
    made = ch.zeros(name, (3, 4), "i2", order="F", permissions=0o640)
    assert made.dtype == "i2" and made.flags.f_contiguous and not made.any()
    assert ch.stat(name).mode & 0o777 == 0o640
    with pytest.raises(ch.ExistsError):
        ch.zeros(name, 3)
    assert ch.zeros(name + "-b", 5).dtype == "f8"


def test_whether_it_is_there(name):
    assert not ch.exists(name)
    ch.zeros(name, 1)
    assert ch.exists(name) and ch.exists("/")
    with pytest.raises(ch.InvalidError):
        ch.exists("not a name")


def test_names_may_be_paths(name):
    path = pathlib.PurePosixPath(name)
    made = ch.zeros(path, 4)
    ch.array(path)[2] = 5
    assert made[2] == 5 and ch.stat(path).name == name and ch.exists(path)
    with ch.open(path, "r+") as opened:
        assert opened.name == name
    ch.rename(path, path.with_name(path.name + "-b"))
    ch.remove(path.with_name(path.name + "-b"))
    assert ch.Mutex(path / "mutex").name == f"{name}/mutex" and ch.Semaphore(path / "many", 2).name == f"{name}/many"
    with pytest.raises(TypeError):
        ch.Mutex(5)
    ch.Condition(path / "condition", ch.Mutex(path / "mutex"))
    ch.Channel.create(path / "channel").send(b"x")
    assert ch.Channel(path / "channel").receive().data == b"x"
    assert ch.Heap(path / "heap", size=1 << 20).name == f"{name}/heap"
    for entry in ch.ls(path):
        ch.remove(entry.name)


def test_one_number_of_a_shape_may_be_left_open(name):
    made = ch.array(name, (-1, 4), "f8", create=True, size=4096)
    assert made.shape == (128, 4)
    assert ch.array(name, (2, -1)).shape == (2, 256) and ch.array(name, -1).shape == (512,)
    assert ch.array(name, (-1, 4), "f8", create=True).shape == (128, 4)
    for bad in ((-1, -1), (-1, 0), (-2, 4)):
        with pytest.raises(ch.InvalidError):
            ch.array(name, bad)
    with pytest.raises(ch.InvalidError, match="how large"):
        ch.array(name + "-b", (-1, 4), create=True)


def test_an_option_that_is_none_is_refused_and_the_right_one_named(name):
    for call in (
        lambda: ch.array(name, 4, create=True, permisions=0o600),
        lambda: ch.zeros(name, 4, permisions=0o600),
        lambda: ch.from_array(name, [1], permisions=0o600),
        lambda: ch.connect().create(name, 4, permisions=0o600),
    ):
        with pytest.raises(TypeError, match="permissions"):
            call()
    assert not ch.exists(name)


def test_a_mapping_is_read_and_written_by_slices(name):
    with ch.create(name, 4096) as opened, opened.map() as mapping:
        mapping[0:5] = b"hello"
        assert mapping[0:5] == b"hello" and mapping[1] == ord("e") and mapping[-4096:-4094] == b"he"
        mapping[0] = ord("j")
        assert opened.read(0, 5) == b"jello" and len(mapping) == 4096
        with pytest.raises(IndexError):
            mapping[4096]
        with pytest.raises(ValueError):
            mapping[0:2] = b"too long"
    with pytest.raises(ch.InvalidError):
        mapping[0]
    with ch.open(name) as opened, opened.map() as mapping, pytest.raises(TypeError):
        mapping[0] = 1


def test_the_version_is_known():
    assert re.fullmatch(r"\d+\.\d+\.\d+", ch.__version__)


def in_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
import commonhold as ch
with ch.create({name!r}, 4096) as opened, opened.map() as mapping:
    mapping[0:5] = b"hello"
    assert opened.read(0, 5) == b"hello"
    turn = ch.Mutex({name!r} + "-turn")
    with turn:
        pass
    channel = ch.Channel.create({name!r} + "-channel")
    channel.send(b"x")
    assert channel.receive().data == b"x"
for call in (lambda: ch.array({name!r}), lambda: ch.zeros({name!r} + "-b", 4), lambda: ch.open({name!r}).array()):
    try:
        call()
    except ImportError as error:
        assert "pip install numpy" in str(error), error
    else:
        raise AssertionError("no error")
assert not ch.exists({name!r} + "-b")
"""


def test_bytes_need_no_numpy(name):
    done = in_python(WITHOUT_NUMPY.format(name=name))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("where", "word"),
    [("sys.platform = 'darwin'", "darwin"), ("sys.platform = 'win32'", "win32"),
     ("os.uname = lambda: os.uname_result(('Linux', '', '6.1.0-18-amd64', '', ''))", "6.1.0-18-amd64.*bookworm-backports")],
)  # fmt: skip
def test_other_systems_and_old_kernels_are_refused_at_import(where, word):
    done = in_python(f"import os, sys\n{where}\nimport commonhold")
    assert done.returncode == 1 and re.search(f"ImportError.*{word}", done.stderr, re.DOTALL)

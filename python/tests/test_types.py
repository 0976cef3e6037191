"""Tags of pages: what hosts of other machine types are told."""

import numpy as np
import pytest

import commonhold as ch

PAGE = ch.PAGE_SIZE_BYTES


def test_arrays_and_names_get_tags(name):
    numbers = ch.array(name, 2 * PAGE // 8, "f8", create=True)
    ch.tag(numbers)
    assert ch.stat(name).types == [(0, 2 * PAGE, "float64")]
    ch.tag(numbers[PAGE // 8 :], np.int16)
    assert ch.stat(name).types == [(0, PAGE, "float64"), (PAGE, PAGE, "int16")]
    ch.tag(name, "offset", 0, PAGE)
    with ch.open(name, "r+") as opened:
        opened.tag_pages("bytes", PAGE, PAGE)
        assert opened.tags() == [(0, PAGE, "offset")]
    ch.tag(name, "bytes")
    assert ch.stat(name).types == []
    assert ch.status().machine == "little-ieee"


@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        ("<u4", "int32"),
        ("?", "bytes"),
        ("S7", "bytes"),
        ("M8[ns]", "int64"),
        ("U4", "int32"),
        ("c8", "float32"),
        ("(3,)f4", "float32"),
        ([("id", "i4"), ("place", "f8", (2,))], "{20: 0 int32, 4 float64*2}"),
        (np.dtype([("id", "i4"), ("place", "f8", (2,))], align=True), "{24: 0 int32, 8 float64*2}"),
        ({"names": ["a"], "formats": ["i4"], "itemsize": 8}, "{8: 0 int32}"),
        ([("of", [("a", "i2"), ("b", "c16")], (2,))], "{36: 0 int16, 2 float64*2, 18 int16, 20 float64*2}"),
        ("{8: 0 int32*2}", "{8: 0 int32*2}"),
        ("offset", "offset"),
        ("float16", "float16"),
    ],
)
def test_dtypes_have_words(dtype, words):
    from commonhold._types import words_of

    assert words_of(dtype) == words


def test_bad_tags_are_refused(name):
    numbers = ch.array(name, 2 * PAGE // 8, "f8", create=True)
    with pytest.raises(ch.InvalidError, match="part of one"):
        ch.tag(numbers[1:])
    with pytest.raises(ch.InvalidError, match="gaps"):
        ch.tag(numbers[::2])
    with pytest.raises(ch.InvalidError, match="does not fit pages"):
        ch.tag(name, [("id", "i4"), ("place", "f8", (2,))])
    with pytest.raises(TypeError):
        ch.tag(name, "int24")
    with pytest.raises(TypeError, match="no counterpart"):
        ch.tag(name, np.longdouble)
    with pytest.raises(ch.NotFoundError):
        ch.tag(name + "-none", "f8")
    assert ch.stat(name).types == []

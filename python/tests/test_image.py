"""Images: built here, read here without a copy, in another process, and by the other side's types."""

import ctypes
import enum
import subprocess
import sys
from pathlib import Path

import commonhold as ch
import numpy as np
import pytest
from commonhold import image


class Node(ctypes.Structure):
    pass


Node._fields_ = [
    ("key", ctypes.c_uint64),
    ("left", ctypes.POINTER(Node)),
    ("right", ctypes.POINTER(Node)),
    ("word", image.Text),
    ("children", image.run_of(image.reference(Node))),
    ("corners", ctypes.c_float * 3),
]

READER = """
import sys, numpy as np
sys.path.insert(0, sys.argv[2])
from test_image import Node
from commonhold import image
words = image.include("words@1", store=sys.argv[1])
top = words.root("tree", Node)
assert (top.key, str(top.word), len(top.children)) == (2, "zwei, два", 2)
assert top.left.contents.key == 1 and not top.left.contents.left
assert [child.contents.key for child in top.children] == [1, 1]
assert list(top.corners) == [0.0, 0.5, 1.0]
assert words.array("squares", "i8").tolist() == [n * n for n in range(1000)]
print("read")
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "images"


def publish(store: Path, name: str = "words@1.0.0") -> None:
    with image.Arena(name, store=store, capacity_bytes=1 << 24) as arena:
        left = arena.new(Node, key=1, word="one")
        top = arena.new(Node, key=2, left=left, word="zwei, два", children=[left, left])
        top.corners[:] = [0.0, 0.5, 1.0]
        arena.root("tree", top)
        arena.root("squares", arena.array(np.arange(1000) ** 2))
        build_id, path = arena.seal()
        assert path.name == build_id


def test_another_process_reads_it_where_it_lies(store: Path) -> None:
    publish(store)
    here = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", READER, store, here], capture_output=True, text=True, timeout=120)
    assert done.stdout == "read\n", done.stderr


def test_arrays_show_the_image_and_are_read_only(store: Path) -> None:
    with image.Arena("points@1.0.0", store=store, capacity_bytes=1 << 24) as arena:
        dtype = np.dtype([("x", "f8"), ("n", "i4"), ("flags", "u1", (2,))], align=True)
        points = np.zeros(5, dtype)
        points["x"], points["n"] = np.arange(5) / 2, range(5)
        arena.root("points", arena.array(points))
        arena.root("empty", arena.array(np.zeros(0, "u2")))
        arena.seal()
    points_again = image.include("points", store=store)
    assert points_again.roots == ["empty", "points"] and points_again.version == "1.0.0"
    shown = points_again.array("points", dtype)
    assert (shown == points).all() and not shown.flags.writeable and not shown.flags.owndata
    start = shown.__array_interface__["data"][0]
    maps = Path("/proc/self/maps").read_text().splitlines()
    assert any(line.endswith(points_again.build_id) and int(line.split("-")[0], 16) <= start for line in maps)
    assert points_again.array("empty", "u2").size == 0
    assert image.include("points@1", store=store).build_id == points_again.build_id
    with pytest.raises(ch.MismatchError, match="made with other fields"):
        points_again.array("points", "f8")
    with pytest.raises(ch.NotFoundError, match="has no root"):
        points_again.array("pints", dtype)


def test_a_pointer_that_leads_out_is_told_with_the_way_to_it(store: Path) -> None:
    outside = Node(key=7)
    with image.Arena("bad@1.0.0", store=store, capacity_bytes=1 << 24) as arena:
        left = arena.new(Node, key=1, right=outside)
        arena.root("tree", arena.new(Node, key=2, left=left))
        with pytest.raises(ch.InvalidError, match=r'root "tree" -> left -> right: 0x\w+ leads out of the arena'):
            arena.seal()
        left.right = None
        arena.seal()
    with pytest.raises(ch.InvalidError, match="closed"):
        arena.text("more")
    with pytest.raises(ch.ExistsError, match="bad@1.0.0 exists"):
        image.Arena("bad@1.0.0", store=store)


def test_images_lead_into_others(store: Path) -> None:
    publish(store, "base@1.0.0")
    base = image.include("base", store=store)
    with image.Arena("top@1.0.0", store=store, capacity_bytes=1 << 24, imports=[base]) as arena:
        arena.root("tree", arena.new(Node, key=9, left=base.root("tree", Node)))
        arena.seal()
    top = image.include("top", store=store).root("tree", Node)
    assert str(top.left.contents.word) == "zwei, два"


def test_types_that_cannot_be_in_images_are_refused(store: Path) -> None:
    class Bits(ctypes.Structure):
        _fields_ = [("a", ctypes.c_uint32, 3)]

    class Name(ctypes.Structure):
        _fields_ = [("name", ctypes.c_char_p)]

    with image.Arena("odd@1.0.0", store=store, capacity_bytes=1 << 24) as arena:
        for kind in (Bits, Name):
            with pytest.raises(TypeError, match="cannot be in an image"):
                arena.root("x", arena.new(kind))
        with pytest.raises(TypeError, match="cannot be in an image"):
            arena.root("x", arena.array(np.zeros(3, "c16")))
        with pytest.raises(TypeError, match="no field"):
            arena.new(Node, kye=1)
    with pytest.raises(ch.NotFoundError, match="there is no image nowhere"):
        image.include("nowhere", store=store)


def test_a_structure_that_extends_another_keeps_the_fields_of_both(store: Path) -> None:
    class Base(ctypes.Structure):
        _fields_ = [("a", ctypes.c_uint32), ("node", ctypes.POINTER(Node))]

    class Both(Base):
        _fields_ = [("b", ctypes.c_uint64)]

    with image.Arena("both@1.0.0", store=store, capacity_bytes=1 << 24) as arena:
        both = arena.new(Both, a=7, b=8, node=arena.new(Node, key=9))
        arena.root("both", both)
        arena.seal()
        assert (both.a, both.b) == (7, 8)
    read = image.include("both", store=store).root("both", Both)
    assert (read.a, read.b, read.node.contents.key) == (7, 8, 9)


def test_an_array_that_does_not_lie_in_one_piece_is_refused(store: Path) -> None:
    with image.Arena("even@1.0.0", store=store, capacity_bytes=1 << 24) as arena:
        numbers = arena.array(np.arange(10))
        for view in (numbers[::2], numbers[::-1], numbers.reshape(2, 5).T):
            with pytest.raises(TypeError, match="does not lie in one piece"):
                arena.root("even", view)
        arena.root("even", arena.array(numbers[::2]))
        arena.root("half", numbers[5:])
        arena.seal()
    even = image.include("even", store=store)
    assert even.array("even", "i8").tolist() == [0, 2, 4, 6, 8]
    assert even.array("half", "i8").tolist() == [5, 6, 7, 8, 9]


def test_numbers_of_the_other_byte_order_are_refused(store: Path) -> None:
    little = sys.byteorder == "little"
    other = ctypes.BigEndianStructure if little else ctypes.LittleEndianStructure
    native = ctypes.LittleEndianStructure if little else ctypes.BigEndianStructure

    class Number(ctypes.c_uint32):
        pass

    fields = [("one", ctypes.c_uint8), ("many", ctypes.c_uint32 * 2)]
    with image.Arena("order@1.0.0", store=store, capacity_bytes=1 << 24) as arena:
        with pytest.raises(TypeError, match="other byte order"):
            arena.root("x", arena.new(type("Other", (other,), {"_fields_": fields})))
        arena.root("x", arena.new(type("Native", (native,), {"_fields_": [*fields, ("more", Number)]})))
        arena.root("y", arena.new(type("Bytes", (other,), {"_fields_": [("one", ctypes.c_uint8)]})))


def test_enumerations_and_characters_are_fields(store: Path) -> None:
    class Change(enum.IntEnum):
        LESS = -1
        SAME = 0
        MORE = 1

    kind = image.choice(Change, ctypes.c_int16)
    assert image.choice(Change, ctypes.c_int16) is kind

    class Word(ctypes.Structure):
        _fields_ = [("change", kind), ("letter", image.Char), ("changes", kind * 2)]

    with image.Arena("words@1.0.0", store=store, capacity_bytes=1 << 24) as arena:
        word = arena.new(Word, change=Change.LESS, letter=ord("д"))
        word.changes[:] = [Change.MORE, Change.SAME]
        arena.root("word", word)
        word.changes[1] = 5
        with pytest.raises(ch.InvalidError, match=r'root "word" -> changes\[1\]: 5 is none of the values of Change'):
            arena.seal()
        word.changes[1] = Change.LESS
        word.letter = 0xD800
        with pytest.raises(ch.InvalidError, match="0xd800 is no character of Unicode"):
            arena.seal()
        word.letter = ord("ж")
        arena.seal()
    read = image.include("words", store=store).root("word", Word)
    assert (read.change.member, str(read.letter)) == (Change.LESS, "ж")
    assert [one.member for one in read.changes] == [Change.MORE, Change.LESS]

    class Later(enum.IntEnum):
        LESS = -1
        SAME = 0
        MORE = 1
        MOST = 300

    fields = [(name, image.choice(Later, ctypes.c_int16), *rest) for name, _, *rest in Word._fields_[:1]]
    with pytest.raises(ch.MismatchError, match="made with other fields"):
        image.include("words", store=store).root("word", type("Word", (ctypes.Structure,), {"_fields_": fields}))
    with image.Arena("narrow@1.0.0", store=store, capacity_bytes=1 << 24) as arena:
        narrow = type("Narrow", (ctypes.Structure,), {"_fields_": [("one", image.choice(Later, ctypes.c_int8))]})
        with pytest.raises(TypeError, match="MOST is 300, which has no room in 1 bytes"):
            arena.root("x", arena.new(narrow))
    with pytest.raises(TypeError, match="not of c_float"):
        image.choice(Later, ctypes.c_float)


def test_images_of_one_group_share_addresses_and_only_one_is_included(store: Path) -> None:
    addresses = set()
    for name in ("german@1.0.0", "french@1.0.0"):
        with image.Arena(name, store=store, group="language", capacity_bytes=1 << 24) as arena:
            numbers = arena.array(np.arange(3))
            addresses.add(numbers.__array_interface__["data"][0])
            arena.root("numbers", numbers)
            arena.seal()
    assert len(addresses) == 1
    image.include("german", store=store)
    with pytest.raises(ch.Error, match="images of the group language are declared never to be in one"):
        image.include("french", store=store)
    with pytest.raises(ch.InvalidError, match="names no group"):
        image.Arena("dutch@1.0.0", store=store, group="no group")


def test_an_arena_that_was_not_closed_is_told_to_who_begins_it_again(store: Path) -> None:
    first = image.Arena("again@1.0.0", store=store, capacity_bytes=1 << 24)
    with pytest.raises(ch.Error, match="another arena of this process has its addresses: seal that one and close it"):
        image.Arena("again@1.0.0", store=store, capacity_bytes=1 << 24)
    first.close()
    image.Arena("again@1.0.0", store=store, capacity_bytes=1 << 24).close()


FORGETS = """
import sys
from commonhold import image
image.Arena("forgotten@1.0.0", store=sys.argv[1], capacity_bytes=1 << 24).text("never sealed")
"""


def test_what_a_forgotten_arena_had_reserved_is_freed_once_its_process_has_ended(store: Path) -> None:
    subprocess.run([sys.executable, "-c", FORGETS, store], check=True, timeout=120)
    markers = store / "building"
    assert [path.name for path in markers.iterdir()] == ["forgotten@1.0.0"]
    publish(store)
    assert list(markers.iterdir()) == []
    # The version can be built with another group: its former addresses are nobody's.
    with image.Arena("forgotten@1.0.0", store=store, group="other", capacity_bytes=1 << 24) as arena:
        arena.root("one", arena.array(np.arange(1)))
        arena.seal()

"""Objects that have one address in all processes."""

import ctypes

import commonhold as ch
import pytest


def test_pointers_in_an_object_hold_in_another_process(name, python):
    with ch.create(name, 65536, fixed=True, room=4 << 20) as made:
        stat = made.stat()
        assert stat.address and stat.room_bytes == 4 << 20
        with made.map() as mapping:
            words = (ctypes.c_uint64 * 8192).from_buffer(memoryview(mapping))
            assert ctypes.addressof(words) == stat.address
            # From the first word by pointers: to page 3, to page 9, to the number 77.
            words[0], words[3 * 512], words[9 * 512] = stat.address + 3 * 4096, stat.address + 9 * 4096, 77
            code = f"""
import commonhold as ch, ctypes
mapping = ch.open({name!r}, "r").map()
at, number = ch.stat({name!r}).address, 0
for _ in range(3):
    at = ctypes.c_uint64.from_address(at).value
print(at)
"""
            assert python(code).stdout == "77\n"
            del words


def test_a_process_has_it_once_at_its_address_and_anywhere_as_often_as_it_likes(name):
    array = ch.array(name, 1000, "u4", create=True, fixed=True)
    assert array.ctypes.data == ch.stat(name).address
    array[7] = 9
    with ch.open(name, "r+") as again:
        with pytest.raises(ch.Error, match="has mapped it there already") as why:
            again.map()
        assert why.value.kind == "busy"
        with again.map(anywhere=True) as other:
            assert memoryview(other).cast("I")[7] == 9
        assert again.read(28, 4) == b"\x09\0\0\0"


def test_what_does_not_go_together_is_refused(name):
    with pytest.raises(ch.InvalidError, match="fixed=True"):
        ch.create(name, 4096, room=1 << 20)
    with pytest.raises(ch.InvalidError, match="do not fit"):
        ch.create(name, 8192, fixed=True, room=4096)
    with pytest.raises(ch.InvalidError, match="wired"):
        ch.create(name, 4096, fixed=True, translation="wired")
    ch.create(name, 4096).close()
    assert ch.stat(name).address is None

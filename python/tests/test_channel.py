"""Channels: messages between processes."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time

import commonhold as ch
import numpy as np
import pytest


@pytest.fixture
def channel(name):
    channel = ch.Channel.create(name, 8192)
    yield channel
    channel.close()


def test_messages_are_bytes_or_arrays(channel, name):
    other = ch.Channel(name)
    channel.send(b"hello", kind=3)
    assert other.receive() == ch.Message(3, b"hello")
    channel.send(np.arange(5, dtype="f4"))
    message = other.receive("f4")
    assert message.kind == 0 and message.data.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError):
        message.data[0] = 1
    channel.send()
    assert other.receive(timeout=1).data == b""
    channel.send()
    assert other.receive("f4").data.shape == (0,)
    channel.send(b"12345")
    with pytest.raises(ch.MismatchError, match="5 bytes is no whole number of float32"):
        other.receive("f4")
    with pytest.raises(TypeError):
        other.receive("O")
    channel.send(memoryview(bytearray(b"ab")), kind=2**32 - 1)
    assert other.receive() == ch.Message(2**32 - 1, b"ab")
    assert channel.most_bytes == 8192 - 16 and channel.name == name


def test_objects_come_with_messages(channel, name):
    other = ch.Channel(name)
    mine = ch.create_nameless(8000, freezable=True, controlled=True)
    array = mine.array("f8", mode="r+")
    array[:] = np.arange(1000)
    channel.send_object(array, b"given", writable=True)
    channel.send_by_reference(array, kind=2)
    channel.send_by_reference(array[512:], kind=3)
    channel.send_by_reference(array[1:], kind=4)
    channel.send_by_reference(mine, offset=4096, length=8, kind=5)
    array[:] = -1
    message = other.receive()
    assert message.data == b"given" and message.object.size_bytes == 8000
    assert not message.object.closed and message.object.stat().name is None
    same = message.object.array("f8")
    assert same[7] == -1
    same[7] = 5
    assert array[7] == 5
    for kind, first, last in [(2, 0, 999), (3, 512, 999), (4, 1, 999), (5, 512, 512)]:
        message = other.receive()
        found = message.object.array("f8")
        assert message.kind == kind and (found[0], found[-1]) == (first, last)
        with pytest.raises(ValueError):
            found[0] = 1
        with pytest.raises(ch.PermissionDeniedError):
            channel.send_object(message.object, writable=True)
    channel.send()
    assert other.receive().object is None
    for wrong in (array[::2], b"bytes"):
        with pytest.raises(TypeError):
            channel.send_by_reference(wrong)
    with pytest.raises(TypeError, match="slice"):
        channel.send_by_reference(array, offset=8)
    with pytest.raises(ch.InvalidError, match="no part of"):
        channel.send_by_reference(mine, offset=8000, length=1)
    with pytest.raises(ch.InvalidError):
        ch.create_nameless(0)


def test_times_are_over(channel):
    for timeout in (0, 0.02):
        with pytest.raises(ch.TimedOutError, match="no message came"):
            channel.receive(timeout=timeout)
    channel.send(bytes(8000), timeout=0)
    with pytest.raises(ch.TimedOutError, match="no room for 500 bytes"):
        channel.send(bytes(500), timeout=0.02)
    with pytest.raises(ch.InvalidError, match="8176"):
        channel.send(bytes(8177))
    with pytest.raises(ch.InvalidError, match="no time"):
        channel.receive(timeout=float("nan"))
    assert len(channel.receive(timeout=1e300).data) == 8000


def test_a_fork_child_and_another_process_send(channel, name, python):
    child = os.fork()
    if child == 0:
        channel.send(b"child")
        os._exit(0)
    assert channel.receive(timeout=30).data == b"child"
    assert os.waitpid(child, 0)[1] == 0
    python(f"import commonhold as ch; ch.Channel({name!r}).send(b'other', kind=7)")
    assert channel.receive(timeout=30) == ch.Message(7, b"other")
    again = pickle.loads(pickle.dumps(channel))
    again.send(b"pickled")
    assert channel.receive().data == b"pickled"


def test_iterating_receives(channel):
    def send():
        for number in range(100):
            channel.send(bytes([number]) * 200, kind=number)

    sender = threading.Thread(target=send)
    sender.start()
    for number, message in enumerate(channel):
        assert (message.kind, message.data) == (number, bytes([number]) * 200)
        if number == 99:
            break
    sender.join()


def test_a_signal_ends_a_wait_and_loses_no_message(channel):
    def interrupt():
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        channel.receive()
    channel.send(b"still here")
    time.sleep(0.1)
    assert channel.receive(timeout=1).data == b"still here"


def test_regions_land_in_arrays(channel, name):
    into = ch.array(f"{name}-input", 1000, "f8", create=True, translation="wired")
    try:
        other = ch.Channel(name)
        with pytest.raises(ch.TimedOutError, match="posted no landing for 80 bytes"):
            other.send_region(np.ones(10), timeout=0.02)
        landing = channel.post(into[100:200])
        other.send_region(np.full(10, 2.5), b"about", kind=4)
        message = channel.receive(timeout=1)
        assert (message.kind, message.data, message.landing, message.landed_bytes) == (4, b"about", landing, 80)
        assert message.region.tolist() == [2.5] * 10 and into[100:110].tolist() == [2.5] * 10 and into[110] == 0
        message.region[0] = 7
        assert into[100] == 7
        withdrawn = channel.post(into)
        channel.withdraw(withdrawn)
        with pytest.raises(ch.Error):
            channel.withdraw(withdrawn)
        with ch.open(f"{name}-input", "r+") as opened:
            channel.post(opened, 0, 8)
            assert channel.withdraw_all() == 1
        with pytest.raises(TypeError):
            channel.post(into[::2])
        with pytest.raises(ch.InvalidError, match="not on an object"):
            channel.post(np.ones(3))
    finally:
        ch.remove(f"{name}-input")


def test_files_are_read_into_objects(name, tmp_path):
    path = tmp_path / "samples"
    path.write_bytes(bytes(range(256)) * 64)
    array = ch.array(name, 65536, "u1", create=True)
    with ch.open(name, "r+") as opened, open(path, "rb") as file:
        bytes_, direct = ch.read_into(path, opened)
        assert bytes_ == 16384 and direct in (0, 16384)
        assert ch.read_into(file, opened, 20000, 10, file_offset=250) == (10, 0)
        assert array[20000:20010].tolist() == [250, 251, 252, 253, 254, 255, 0, 1, 2, 3]
        with pytest.raises(ch.InvalidError):
            ch.read_into(file.fileno(), opened, 65530, 10)


def test_what_is_closed_or_no_channel(channel, name):
    ch.create(f"{name}-plain", 65536).close()
    try:
        with pytest.raises(ch.MismatchError, match="is no channel"):
            ch.Channel(f"{name}-plain")
    finally:
        ch.remove(f"{name}-plain")
    with ch.Channel(name) as other:
        pass
    assert other.closed and "closed" in repr(other)
    with pytest.raises(ch.InvalidError, match="closed"):
        other.receive()
    with pytest.raises(ch.InvalidError):
        ch.Channel.create(f"{name}-x", 4096, translation="shared-tables")
    with pytest.raises(ch.NotFoundError):
        ch.Channel("/nothing")

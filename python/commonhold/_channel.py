"""Channels: named queues of messages in shared memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from . import _native
from ._errors import mismatch
from ._files import File
from ._handles import _pages_of
from ._host import Host, default_host
from ._native import Object
from ._numpy import np
from ._types import storable
from ._typing import Array, Buffer, DType, Name


@dataclass(frozen=True)
class Message:
    """A message that was received."""

    kind: int
    """Chosen by who sent it."""
    data: Any
    """What it holds in line: bytes, or an array that cannot be written, if a dtype was given to `receive`."""
    region: Array | None = None
    """What landed in an array that was posted, as far as it reaches: elements of that array, in one dimension."""
    landing: int = 0
    """Which landing that was; 0: there is no region."""
    landed_bytes: int = 0
    """How many bytes landed."""
    object: Object | None = None
    """The object that came with it, open as its sender stated: `message.object.array()` is an array on it."""


class Channel:
    """A named queue of messages. Any number of threads and processes may send and receive; each message is received once.

    `Channel(name)` opens one, `Channel.create(name, capacity)` makes one. Times are seconds: None is for ever, 0 not at all,
    and `TimedOutError` says that it is over. Iterating receives for ever. A fork child may use its parent's channels; to
    another process a channel is pickled by its name.
    """

    __slots__ = ("_host", "_name", "_native", "_posted")

    def __init__(self, name: Name, host: Host | None = None) -> None:
        name = os.fspath(name)
        host = default_host() if host is None else host
        self._begin(host, name, _native.Channel.open(host._native, name))

    def _begin(self, host: Host, name: str, native: _native.Channel) -> None:
        self._host, self._name, self._native = host, name, native
        self._posted: dict[int, Array] = {}

    @classmethod
    def create(
        cls,
        name: Name,
        capacity: int = 65536,
        *,
        translation: Literal["paged", "wired"] = "paged",
        permissions: int = 0o600,
        host: Host | None = None,
    ) -> Self:
        """Creates a channel, and opens it.

        `capacity`: bytes that may be in it at once, 16 for each message beside its own; rounded up to a power of two, at
        least 4096. `permissions`: who uses it needs reading and writing, also to receive.
        """
        host = default_host() if host is None else host
        name, channel = os.fspath(name), cls.__new__(cls)
        native = _native.Channel.create(host._native, name, capacity, translation, permissions)
        channel._begin(host, name, native)
        return channel

    @property
    def name(self) -> str:
        """As it was opened."""
        return self._name

    @property
    def closed(self) -> bool:
        """Whether it was closed here."""
        return self._native.closed

    @property
    def most_bytes(self) -> int:
        """Bytes of the largest message that it takes in line."""
        return self._native.most_bytes

    def send(self, data: Buffer = b"", *, kind: int = 0, timeout: float | None = None) -> None:
        """Sends the bytes of a buffer: `bytes`, an array, a `memoryview`. Waits for room."""
        self._native.send(kind, data, timeout)

    def receive(self, dtype: DType = None, *, timeout: float | None = None) -> Message:
        """Receives the next message, as bytes or as an array of that type. Waits for one. A message that is no whole number of
        such elements is `MismatchError`, and gone: receive bytes where that may be."""
        element = None if dtype is None else storable(dtype)
        kind, data, landing, landed_bytes, came = self._native.receive(timeout)
        found = data if element is None else _array(data, element)
        posted = self._posted.pop(landing, None)
        region = None if posted is None else posted.reshape(-1)[: landed_bytes // posted.itemsize]
        return Message(kind, found, region, landing, landed_bytes, came)

    def post(self, where: Array | Object, offset: int = 0, length: int | None = None) -> int:
        """Lets senders copy a region straight to an array on a wired object (one run, in C order), or to a part of such an
        object, until something has landed there or it is withdrawn. The object is of the channel's directory, owner, group
        and permissions. Gives the landing's number."""
        if isinstance(where, Object):
            whole = where.size_bytes - offset if length is None else length
            return self._native.post(where, offset, whole)
        if offset != 0 or length is not None:
            raise TypeError("of an array a slice says which part: post(array[10:20])")
        if not where.flags.c_contiguous or not where.flags.writeable:
            raise TypeError("a landing is an array in one run that can be written")
        pages = _pages_of(where)
        first, nbytes = _native.address_range(where)
        landing = self._native.post(pages, first - pages.address + pages.offset, nbytes)
        self._posted[landing] = where
        return landing

    def withdraw(self, landing: int) -> None:
        """Takes a landing back. A sender that is copying there may still write to it; its message is refused."""
        self._posted.pop(landing, None)
        self._native.withdraw(landing)

    def withdraw_all(self) -> int:
        """Takes back all landings, also those of a receiver that died; gives how many there were."""
        self._posted.clear()
        return self._native.withdraw_all()

    def send_region(
        self, region: Buffer, data: Buffer = b"", *, kind: int = 0, timeout: float | None = None
    ) -> None:
        """Copies a buffer straight to a landing of the receiver, and sends a message about it that holds `data` in line."""
        self._native.send_region(kind, data, region, timeout)

    def send_object(
        self,
        where: Array | Object,
        data: Buffer = b"",
        *,
        writable: bool = False,
        kind: int = 0,
        timeout: float | None = None,
    ) -> None:
        """Sends a message with an object, or with the one that an array lies on: who receives it has all of it open, to read
        or (`writable`) to write, whatever its name and permissions are. The sender may close it at once."""
        object = where if isinstance(where, Object) else _pages_of(where)
        self._native.send_object(kind, data, object, writable, timeout)

    def send_by_reference(
        self,
        where: Array | Object,
        data: Buffer = b"",
        *,
        offset: int = 0,
        length: int | None = None,
        kind: int = 0,
        timeout: float | None = None,
    ) -> None:
        """Sends a message with part of an object as it is now, by reference: the receiver gets an object of it, to read.

        `where`: an array in one run on an object, or an object, from `offset` on. Nothing is copied but pages that are
        written here, or touched there. That takes an object whose writers can be held (`freezable`), open for writing, and a
        part that begins at a multiple of 4096; else it is copied once.
        """
        if isinstance(where, Object):
            whole = where.size_bytes - offset if length is None else length
            return self._native.send_by_reference(kind, data, where, offset, whole, timeout)
        if offset != 0 or length is not None:
            raise TypeError("of an array a slice says which part: send_by_reference(array[10:20])")
        if not isinstance(where, np.ndarray) or not where.flags.c_contiguous:
            raise TypeError("what is sent by reference is an array in one run")
        pages = _pages_of(where)
        first, nbytes = _native.address_range(where)
        return self._native.send_by_reference(
            kind, data, pages, first - pages.address + pages.offset, nbytes, timeout
        )

    def close(self) -> None:
        """Gives it up. What is in it stays."""
        self._native.close()

    def __iter__(self) -> Iterator[Message]:
        while True:
            yield self.receive()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return Channel, (self._name, self._host)

    def __repr__(self) -> str:
        return f"<commonhold.Channel {self._name}{', closed' if self.closed else ''}>"


def _array(data: bytes, element: np.dtype[Any]) -> Array:
    count, rest = divmod(len(data), element.itemsize)
    if rest:
        raise mismatch(f"a message of {len(data)} bytes is no whole number of {element}: receive it as bytes")
    return np.ndarray((count,), element, data)


def read_into(
    file: File, where: Object, offset: int = 0, length: int | None = None, *, file_offset: int = 0
) -> tuple[int, int]:
    """Reads part of a file straight into an object, which may be another process's wired one; all that there is room for,
    unless a length is given. Gives how many bytes came (fewer where the file ends), and how many of them went past the page
    cache: those at multiples of 4096 in both, where the file allows it."""
    whole = where.size_bytes - offset if length is None else length
    if isinstance(file, (str, os.PathLike)):
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return where._read_into(descriptor, file_offset, offset, whole)
        finally:
            os.close(descriptor)
    return where._read_into(file if isinstance(file, int) else file.fileno(), file_offset, offset, whole)

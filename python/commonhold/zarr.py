"""Objects as a store of zarr (version 3): each key is an object, below one directory of names.

    import zarr
    from commonhold.zarr import ObjectStore

    cube = zarr.create_array(ObjectStore("/lab/cube"), shape=(1000, 1000), chunks=(100, 100), dtype="f4")

What is read is a view of the object's pages, without a copy, as long as nothing is to be decompressed. A chunk is replaced as
a whole: who reads meanwhile has the one before or the new one, and keeps what it has.
"""

from __future__ import annotations

import asyncio
import errno
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Unpack

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from ._arrays import array
from ._errors import ExistsError, InvalidError, MismatchError, NotFoundError
from ._host import create, ls, open, remove, rename, stat
from ._records import DirectoryStat
from ._typing import CreateOptions, Name, check_options

_NEW = ".new-"
# Of what has no bytes the object has one, and this description: no object has none.
_EMPTY = "empty"


class ObjectStore(Store):
    """The objects below the directory `root`, as a store of zarr.

    `options` are those of `commonhold.create` for objects that it makes, such as `coherence="strict"`. Whoever is killed while it
    writes a key leaves an object whose name begins with `.new-`; `clear` removes those, too.
    """

    supports_writes = True
    supports_deletes = True
    supports_listing = True

    def __init__(self, root: Name, *, read_only: bool = False, **options: Unpack[CreateOptions]) -> None:
        super().__init__(read_only=read_only)
        check_options("ObjectStore", options)
        for refused in ("file", "pager", "ephemeral"):
            if options.get(refused):
                raise InvalidError(22, f"{refused} is for one object: a store has one for each key")
        self.root = str(root).rstrip("/")
        self._options = options

    def with_read_only(self, read_only: bool = False) -> ObjectStore:
        """The same objects, for reading only or not."""
        return type(self)(self.root, read_only=read_only, **self._options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and (self.root, self.read_only) == (other.root, other.read_only)

    def __hash__(self) -> int:
        return hash((self.root, self.read_only))

    def __str__(self) -> str:
        return f"commonhold://{self.root}"

    def __repr__(self) -> str:
        return f"ObjectStore({self.root!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.root, self.read_only, self._options)

    # What zarr asks for.

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The bytes of a key, or a part of them; None if there is no such key."""
        return await asyncio.to_thread(self._get, key, prototype or default_buffer_prototype(), byte_range)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Parts of several keys."""
        return list(await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Whether there is such a key."""
        return await asyncio.to_thread(self._exists, key)

    async def set(self, key: str, value: Buffer) -> None:
        """Gives a key other bytes, in one step."""
        self._check_writable()
        await asyncio.to_thread(self._set, key, value, True)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Gives a key bytes, unless it has some."""
        self._check_writable()
        await asyncio.to_thread(self._set, key, value, False)

    async def delete(self, key: str) -> None:
        """Removes a key, if there is one. What was read of it stays."""
        self._check_writable()
        await asyncio.to_thread(_remove_if_there, self._name(key))

    async def delete_dir(self, prefix: str) -> None:
        """Removes all keys below a prefix, and their directories."""
        self._check_writable()
        await asyncio.to_thread(_remove_below, self._name(prefix.rstrip("/")))

    async def clear(self) -> None:
        """Removes all keys."""
        await self.delete_dir("")

    async def is_empty(self, prefix: str) -> bool:
        """Whether no key is below a prefix."""
        return await asyncio.to_thread(lambda: next(self._below(prefix.rstrip("/")), None) is None)

    async def list(self) -> AsyncIterator[str]:
        """All keys."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """All keys that begin so."""
        directory = prefix.rpartition("/")[0]
        for key in await asyncio.to_thread(lambda: [key for key in self._below(directory) if key.startswith(prefix)]):
            yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """What is in one directory."""
        for entry in await asyncio.to_thread(_entries, self._name(prefix.rstrip("/"))):
            yield entry.name.rpartition("/")[2]

    async def getsize(self, key: str) -> int:
        """How many bytes a key has. Raises `FileNotFoundError`."""
        return await asyncio.to_thread(lambda: _size(stat(self._name(key))))

    # How it is done.

    def _name(self, key: str) -> str:
        return f"{self.root}/{key}" if key else self.root or "/"

    def _exists(self, key: str) -> bool:
        try:
            return not isinstance(stat(self._name(key)), DirectoryStat)
        except NotFoundError:
            return False

    def _get(self, key: str, prototype: BufferPrototype, part: ByteRequest | None) -> Buffer | None:
        try:
            opened = open(self._name(key))
        except (NotFoundError, MismatchError):  # a directory is no key
            return None
        with opened:
            content = opened.array(mode="r")
            content = content[:0] if opened.description == _EMPTY else content
        return prototype.buffer.from_array_like(content[_slice(part, content.nbytes)])

    def _set(self, key: str, value: Buffer, replace: bool) -> None:
        if not isinstance(value, Buffer):
            raise TypeError(f"a key's value is a Buffer of zarr, not {type(value).__name__}")
        content = value.as_numpy_array().reshape(-1).view("u1")
        directory, slash, _ = key.rpartition("/")
        new = self._name(f"{directory}{slash}{_NEW}{secrets.token_hex(8)}")
        with create(new, max(content.nbytes, 1), description="" if content.nbytes else _EMPTY, **self._options) as made:
            try:
                if content.nbytes:
                    made.array()[...] = content
                rename(new, self._name(key), replace=replace)
            except BaseException as error:
                _remove_if_there(new)
                if not isinstance(error, ExistsError) or replace:
                    raise

    def _below(self, directory: str) -> Iterator[str]:
        for entry in _entries(self._name(directory)):
            key = entry.name[len(self.root) + 1 :]
            if isinstance(entry, DirectoryStat):
                yield from self._below(key)
            else:
                yield key


def _again(kind: Any, root: str, read_only: bool, options: CreateOptions) -> ObjectStore:
    made: ObjectStore = kind(root, read_only=read_only, **options)
    return made


def _entries(directory: str) -> list[Any]:
    """What is in a directory, without what is being written; nothing if there is none."""
    try:
        return [entry for entry in ls(directory) if not entry.name.rpartition("/")[2].startswith(_NEW)]
    except NotFoundError:
        return []


def _size(found: Any) -> int:
    if isinstance(found, DirectoryStat):
        raise NotFoundError(errno.ENOENT, f"{found.name} is a directory, and no key")
    return 0 if found.description == _EMPTY else int(found.size_bytes)


def _slice(part: ByteRequest | None, size: int) -> slice:
    match part:
        case None:
            return slice(None)
        case RangeByteRequest(start, end):
            return slice(start, end)
        case OffsetByteRequest(offset):
            return slice(offset, None)
        case SuffixByteRequest(suffix):
            return slice(max(size - suffix, 0), None)
    raise InvalidError(22, f"{part!r} is no part of a key that is known here")


def _remove_if_there(name: str) -> None:
    try:
        remove(name)
    except NotFoundError:
        pass


def _remove_below(directory: str) -> None:
    try:
        entries = ls(directory)
    except NotFoundError:
        return
    for entry in entries:
        if isinstance(entry, DirectoryStat):
            _remove_below(entry.name)
        else:
            _remove_if_there(entry.name)
    if directory != "/":
        _remove_if_there(directory)

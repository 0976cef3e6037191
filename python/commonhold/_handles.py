"""Passing objects, mappings and arrays to other processes: by name, never by content."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from . import _native
from ._errors import invalid, lost
from ._native import Mapping, Object, Pages
from ._numpy import HAS_NUMPY, np
from ._received import pages_of_place, remember
from ._shared_array import on_pages
from ._types import words_of
from ._typing import Array, Buffer, Mode, Name


@dataclass(frozen=True)
class ArrayHandle:
    """An array's place in an object. It can be pickled, and gives the same array in another process."""

    state_directory: os.PathLike[str]
    name: str
    uuid: int
    mode: Mode
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    first: int
    """Offset in the object of the lowest byte, and of the first element from it."""
    start: int
    nbytes: int

    def array(self) -> Array:
        """The array: of the same pages as the one the handle was made of."""
        place = os.fspath(self.state_directory), self.name, self.uuid, self.mode, self.first, self.nbytes
        return array_of(*place, self.start, self.dtype, self.shape, self.strides)


def handle(array: Array) -> ArrayHandle:
    """A handle of an array on an object (or of any view of one), to be passed to another process."""
    pages = _pages_of(array)
    if pages.mode == "c":
        raise invalid("a copy-on-write array has no place in an object: pass a copy of it")
    if array.size == 0:
        raise invalid("an empty array has no place in an object")
    first, nbytes, start = _part(pages, array)
    return ArrayHandle(
        state_directory=pages.state_directory,
        name=pages.object_name(),
        uuid=pages.uuid,
        mode=pages.mode if array.flags.writeable else "r",
        dtype=array.dtype,
        shape=array.shape,
        strides=array.strides,
        first=first,
        start=start,
        nbytes=nbytes,
    )


def name_of(what: Array | Mapping | Buffer) -> str:
    """The name that the object has now which an array, a view of one, or a mapping shows.

    Raises `NotFoundError` if it was removed, and `InvalidError` for what is on no object."""
    return _pages_of(what).object_name()


def place_of(array: Array) -> tuple[Any, ...] | None:
    """Where an array's elements lie, as `array_of` takes it: by that it is pickled. None: they are its own."""
    pages = _base_of(array)
    if not isinstance(pages, Pages) or pages.mode == "c" or array.size == 0:
        return None
    key = pages.directory, pages.uuid, pages.mode if array.flags.writeable else "r"
    if key[2] == pages.mode:
        remember(key, pages, keep=False)
    dtype = array.dtype
    elements: Any = dtype.str if dtype.names is None and dtype.subdtype is None else dtype
    return key[0], pages.recent_name(), *key[1:], *_part(pages, array), elements, array.shape, array.strides


def array_of(
    directory: str, name: str, uuid: int, mode: Mode, first: int, nbytes: int, start: int, dtype: Any,
    shape: tuple[int, ...], strides: tuple[int, ...],
) -> Array:  # fmt: skip
    """The array at a place: what it is unpickled by. Pages of this process that show it serve, if there are any."""
    key = directory, uuid, mode
    pages = pages_of_place(key, first, nbytes)
    if pages is None:
        with open_same(directory, name, uuid, mode) as opened:
            pages = opened.pages(first, nbytes, mode)
    remember(key, pages)
    return on_pages(pages, first - pages.offset + start, dtype, shape, strides)


def _part(pages: Pages, array: Array) -> tuple[int, int, int]:
    """Offset in the object of an array's lowest byte, how many bytes it reaches over, and its first element from the lowest."""
    first, nbytes = _native.address_range(array)
    return first - pages.address + pages.offset, nbytes, array.__array_interface__["data"][0] - first


def revert(target: Name | Array | Mapping | Object | Buffer) -> int:
    """Drops what was not synced of the whole object (named, or shown by an array), whoever wrote it; gives the number of pages.

    What was opened with mode "r" is refused; a name needs the right to write the object.
    """
    if isinstance(target, (str, os.PathLike)):
        from ._host import default_host

        return default_host().revert(target)
    return target.revert() if isinstance(target, Object) else _pages_of(target).revert()


def tag(
    target: Name | Array | Mapping | Object, what: Any = None, offset: int = 0, length: int | None = None
) -> None:
    """Says what is in whole pages of an object: a dtype, or words such as `offset` and `{24: 0 int32, 8 float64*2}`.

    Hosts of other machine types (byte order, format of floats) translate such pages when they come. Of an array its own pages
    get its own dtype, unless others are given. Refused (`Error` with `kind` `busy`) while another host than the object's home
    uses it.
    """
    if isinstance(target, (str, os.PathLike)):
        from ._host import default_host

        default_host().tag(target, what, offset, length)
    elif isinstance(target, Object):
        target.tag_pages(words_of(what), offset, length)
    else:
        pages = _pages_of(target)
        array = np.asarray(target)
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            raise invalid("the array has gaps between its elements: give the array that it is a view of")
        words = words_of(array.dtype if what is None else what)
        first = array.__array_interface__["data"][0] - pages.address + pages.offset + offset
        pages.tag(words, first, array.nbytes - offset if length is None else length)


def _pages_of(thing: Any) -> Pages:
    """The pages that an array, or a view of one, was made on."""
    base = _base_of(thing)
    if not isinstance(base, Pages):
        raise invalid(f"the {type(thing).__name__} is not on an object: make it with commonhold.array")
    return base


def _base_of(thing: Any) -> Any:
    """What an array, or a view of one, shows: pages of an object, or something else."""
    base = thing
    while not isinstance(base, Pages):
        if isinstance(base, memoryview):
            base = base.obj
        elif isinstance(base, Mapping):
            base = base.pages
        elif HAS_NUMPY and isinstance(base, np.ndarray):
            base = base.base
        else:
            break
    return base


def open_same(state_directory: os.PathLike[str], name: str, uuid: int, mode: Mode) -> Object:
    """Opens an object by name, unless it is another one by now."""
    opened = _native.connect(state_directory).open(name, mode)
    if opened.uuid != uuid:
        opened.close()
        raise lost(f"object {name} was replaced by another of that name: pass it anew")
    return opened


def map_same(
    state_directory: os.PathLike[str], name: str, uuid: int, mode: Mode, offset: int, length: int
) -> Mapping:
    """Maps the same part of an object."""
    with open_same(state_directory, name, uuid, "r" if mode == "c" else mode) as opened:
        return opened.map(offset, length, mode)

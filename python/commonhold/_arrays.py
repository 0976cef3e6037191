"""NumPy arrays on objects."""

from __future__ import annotations

import math
import os
import operator
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, Unpack

from ._errors import ExistsError, InvalidError, NotFoundError, PermissionDeniedError, mismatch
from ._native import PAGE_SIZE_BYTES, Object
from ._numpy import np
from ._shared_array import on_pages
from ._system_calls import warn_of_system_calls
from ._types import agree, description_of, order_of, parse, storable
from ._typing import Array, CreateOptions, DType, Inherit, Mode, Name, Order, Shape, States, check_options

if TYPE_CHECKING:
    from ._host import Host

LOCKED = 0x80
"""Bit of a page's state in `incore`: a page-holding lock is on it."""


class PageState(IntEnum):
    """State of a page in `incore`, without the bit `LOCKED`."""

    INVALID = 0
    """Past the end of the object."""
    ABSENT = 1
    """Not in memory: paged out, or never touched."""
    CLEAN = 2
    """In memory, and equal to what is stored."""
    DIRTY = 3
    """In memory (or spilled), and newer than what is stored."""
    LOST = 4
    """Of an object that hosts share: its newest version was lost with a host. A touch raises SIGBUS until
    `Host.revert`."""


def array(
    name: Name | None,
    shape: Shape | None = None,
    dtype: DType = None,
    *,
    create: bool | Literal["new"] = False,
    size: int | None = None,
    mode: Mode | None = None,
    offset: int = 0,
    order: Order | None = None,
    lock: bool = False,
    prefetch: bool = False,
    in_thread: bool = False,
    inherit: Inherit = "share",
    **options: Unpack[CreateOptions],
) -> Array:
    """A NumPy array on the object of that name. Other programs may hold the same pages.

    Dtype and shape are those the object was created with, unless given; without any, bytes. An object that its array filled
    has more rows after it was made larger, and fewer after it was made smaller (columns with order `F`); an array that is
    mapped keeps its shape. One number of the shape may be -1: as many as there is room for. Another dtype than it was created
    with is a `MismatchError` (a `TypeError`): view the array instead.

    `create=True` creates the object if it is not there; one that is there must have been created with the same dtype,
    shape and order, else that is a `MismatchError`. `create="new"` refuses one that is there. Its size is that of the
    array, or `size` bytes, or that of `file`; `options` are those of `commonhold.create`, such as `file`,
    `sync="atomic"` and `permissions`.

    `mode` is `r+` (read and write), `r` (read), or `c` (copy-on-write: what is written stays in this array). Unless
    given: `r+`, or `r` where writing is not permitted. `offset` is where the array begins in the object, in bytes.
    `order` is NumPy's, `C` or `F`, and recorded with the shape: unless given, it is that of the object. `lock`, `prefetch`,
    `in_thread` and `inherit` are those of `Object.map`.

    Raises `NotFoundError` if there is no such object (and `create` is not given), `ExistsError` with
    `create="new"`, `MismatchError` if dtype or shape do not fit it, `PermissionDeniedError`, `InvalidError` for an
    empty shape, and what `commonhold.create` raises.
    """
    from ._host import default_host

    return array_on_host(
        default_host(), name, shape, dtype, create=create, size=size, mode=mode, options=options,
        how={"offset": offset, "order": order, "lock": lock, "prefetch": prefetch, "in_thread": in_thread,
             "inherit": inherit},
    )  # fmt: skip


def zeros(
    name: Name | None, shape: Shape, dtype: DType = "f8", *, order: Order = "C", **options: Unpack[CreateOptions]
) -> Array:
    """A new object of that name, and a NumPy array of zeros on all of it. `options` are those of `commonhold.create`. None: under
    a name that nobody has, and that goes with the last that shows it (`commonhold.name_of` tells it).

    Raises `ExistsError` if the name is taken: `array` opens what is there.
    """
    check_options("zeros", options)
    return array(name, shape, dtype, create="new", order=order, **options)


def from_array(name: Name | None, content: Any, **options: Unpack[CreateOptions]) -> Array:
    """A new object of that name with the elements of an array (or of what NumPy makes one of), and an array on it: of
    the same dtype, shape and order.

    Raises `ExistsError` if the name is taken. If it cannot be filled, it is removed again.
    """
    check_options("from_array", options)
    content = np.asanyarray(content)
    order: Order = "F" if content.flags.f_contiguous and not content.flags.c_contiguous else "C"
    made = array(name, content.shape or (1,), content.dtype, create="new", order=order, **options)
    try:
        made[...] = content
    except BaseException:
        from ._handles import name_of
        from ._host import remove

        remove(name_of(made))
        raise
    return made


def array_on_host(
    host: Host,
    name: Name | None,
    shape: Shape | None,
    dtype: DType,
    *,
    create: bool | Literal["new"],
    size: int | None,
    mode: Mode | None,
    how: dict[str, Any],
    options: CreateOptions,
) -> Array:
    """See `array`."""
    check_options("array", options)
    if name is None:
        if create is False:
            raise TypeError("an array without a name is a new one: add create=True")
        create = "new"
    else:
        name = os.fspath(name)
    if create is False and (size is not None or options):
        given = ", ".join(["size"] * (size is not None) + list(options))
        raise TypeError(f"{given} can only be chosen when an object is created: add create=True")
    if how["order"] not in (None, "C", "F"):
        raise InvalidError(22, f"order {how['order']!r} is neither 'C' nor 'F'")
    opened, was_there = None, False
    while opened is None:
        if name is not None and create != "new":
            opened = _open_if_there(host, name, mode, must=not create)
            was_there = opened is not None
        if opened is None:
            try:
                opened = _create(host, name, shape, dtype, size, how, options)
            except ExistsError:
                if name is None or create == "new":
                    raise
                # Another process was faster. Its object may be gone by now, if it was ephemeral.
    with opened:
        if create and was_there:
            _check_is_the_same(opened, dtype, shape, how)
        return on_object(opened, dtype, shape, mode=mode, **how)


def _check_is_the_same(opened: Object, dtype: DType, shape: Shape | None, how: dict[str, Any]) -> None:
    """Refuses an object that is there, and is not what `create=True` would have made."""
    stored, stored_shape = parse(opened.description)
    found = np.dtype(np.uint8) if stored is None else stored
    asked = storable(np.uint8 if dtype is None else dtype)
    advice = "leave create=True out to use what is there, or remove the object first"
    if found != asked:
        raise mismatch(f"object {opened.name} is there already, and holds {found.str}, not {asked.str}: {advice}")
    dims = None if shape is None else _dims(shape)
    if dims is not None and stored_shape is not None:
        room = opened.size_by_now() - how["offset"]
        dims, stored_shape = (_without_blank(each, asked.itemsize, room) for each in (dims, stored_shape))
    if dims is not None and stored_shape is not None and dims != stored_shape:
        raise mismatch(f"object {opened.name} is there already with shape {stored_shape}, not {dims}: {advice}")
    order, stored_order = how["order"] or "C", order_of(opened.description)
    if order != stored_order and len(stored_shape or ()) > 1:
        raise mismatch(f"object {opened.name} is there already with order {stored_order}, not {order}: {advice}")


def _open_if_there(host: Host, name: str, mode: Mode | None, must: bool) -> Any:
    try:
        if mode is not None:
            return host.open(name, "r" if mode == "c" else mode)
        try:
            return host.open(name, "r+")
        except PermissionDeniedError:
            return host.open(name, "r")
    except NotFoundError:
        if must:
            raise
        return None


def _create(
    host: Host, name: str | None, shape: Shape | None, dtype: DType, size: int | None, how: dict[str, Any],
    options: CreateOptions,
) -> Object:  # fmt: skip
    elements = storable(np.uint8 if dtype is None else dtype)
    offset = operator.index(how["offset"])
    dims = None if shape is None else _dims(shape)
    if dims is not None and size is not None:
        dims = _without_blank(dims, elements.itemsize, size - offset)
    if dims is not None and -1 not in dims:
        nbytes = _nbytes(elements, dims)
        if nbytes == 0:
            raise InvalidError(22, f"an array of shape {dims} is empty: an array has at least one element")
        needed = offset + nbytes
        if size is not None and size < needed:
            raise InvalidError(
                22, f"an array of {needed} bytes does not fit size {size}: leave the size out, or give more"
            )
        size = needed if size is None else size

    def description(size_bytes: int) -> str:
        order, room = how["order"] or "C", size_bytes - offset
        asked = (-1,) if dims is None else dims
        found = _without_blank(asked, elements.itemsize, room)
        slowest = asked[-1 if order == "F" else 0] if asked else 1
        # An object with shared page tables is larger than it was asked to be: whole huge pages.
        is_exact = not options.get("translation", "").startswith("shared-tables")
        fills = slowest == -1 or _nbytes(elements, found) == room
        return description_of(elements, found, order, follows=asked != () and is_exact and fills)

    return host._create(name, size, description, **options)


def on_object(
    opened: Object,
    dtype: DType = None,
    shape: Shape | None = None,
    *,
    mode: Mode | None = None,
    offset: int = 0,
    order: Order | None = None,
    lock: bool = False,
    prefetch: bool = False,
    in_thread: bool = False,
    inherit: Inherit = "share",
) -> Array:
    """A NumPy array on an open object; the object may be closed afterwards."""
    dims = None if shape is None else _dims(shape)
    description = opened.description
    if description:
        elements, dims = agree(opened.name, description, dtype, dims)
    else:
        elements = storable(np.uint8 if dtype is None else dtype)
    if dims is None:
        # As large as the object is now: another process may have changed it.
        dims = ((opened.size_by_now() - offset) // elements.itemsize,)
    elif -1 in dims:
        dims = _without_blank(dims, elements.itemsize, opened.size_by_now() - offset)
    order = _agreed_order(opened, order, dims)
    nbytes = _nbytes(elements, dims)
    if offset < 0 or nbytes <= 0 or offset + nbytes > opened.size_bytes:
        _refuse(opened, elements, dims, offset, nbytes)
    if opened.controlled:
        warn_of_system_calls(opened.state_directory)
    pages = opened.pages(
        offset, nbytes, mode, lock=lock, prefetch=prefetch, in_thread=in_thread, inherit=inherit
    )
    return on_pages(pages, offset % PAGE_SIZE_BYTES, elements, dims, None, order)


def _agreed_order(opened: Object, order: Order | None, dims: tuple[int, ...]) -> Order:
    """The order of an array on an object, which may be recorded there."""
    stored: Order = "F" if order_of(opened.description) == "F" else "C"
    recorded = len(parse(opened.description)[1] or ()) > 1
    if order is not None and order != stored and recorded and len(dims) > 1:
        raise mismatch(
            f"object {opened.name} holds an array of order {stored}, and {order} was asked for: its elements would "
            f"change places. Leave the order out, and transpose the array where you need that"
        )
    return stored if order is None or recorded else order


def _refuse(opened: Object, elements: np.dtype[Any], dims: tuple[int, ...], offset: int, nbytes: int) -> None:
    """Raises unless the array fits the object as it is by now."""
    what = f"an array of {dims} {elements} from byte {offset} on"
    if offset < 0 or nbytes <= 0:
        raise InvalidError(22, f"{what} of object {opened.name} is empty: an array has at least one element")
    size = opened.stat().size_bytes
    if offset + nbytes > size:
        raise mismatch(
            f"{what} takes {offset + nbytes} bytes, and object {opened.name} has {size}: "
            f"give a smaller shape, or resize it"
        )


def _dims(shape: Shape) -> tuple[int, ...]:
    try:
        return (operator.index(shape),)  # type: ignore[arg-type]
    except TypeError:
        return tuple(operator.index(n) for n in shape)  # type: ignore[union-attr]


def _without_blank(dims: tuple[int, ...], itemsize: int, room: int) -> tuple[int, ...]:
    """The shape, with as many as there is room for in so many bytes where it says -1."""
    if -1 not in dims:
        return dims
    row = -math.prod(dims) * itemsize
    if dims.count(-1) > 1 or row <= 0:
        raise InvalidError(22, f"shape {dims}: one number may be -1, and the others are 1 or more")
    return tuple(room // row if n == -1 else n for n in dims)


def _nbytes(dtype: np.dtype[Any], dims: tuple[int, ...]) -> int:
    if any(n < 0 for n in dims):
        raise InvalidError(22, f"shape {dims} has a negative dimension")
    return math.prod(dims) * dtype.itemsize


def page_states(states: bytearray) -> States:
    """An array of page states."""
    return np.frombuffer(states, dtype=np.uint8)

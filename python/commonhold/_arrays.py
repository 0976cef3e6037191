"""NumPy arrays on objects."""

import math
import operator
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ._errors import ExistsError, InvalidError, NotFoundError, PermissionDeniedError, mismatch
from ._native import PAGE_SIZE_BYTES, Object
from ._types import agree, order_of, parse, storable, tag_of
from ._typing import Array, DType, Inherit, Mode, Order, Shape, States

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
    name: str,
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
    **options: Any,
) -> Array:
    """A NumPy array on the object of that name. Other programs may hold the same pages.

    Dtype and shape are those the object was created with, unless given; without any, bytes. Another dtype than it
    was created with is a `MismatchError` (a `TypeError`): view the array instead.

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


def array_on_host(
    host: "Host",
    name: str,
    shape: Shape | None,
    dtype: DType,
    *,
    create: bool | Literal["new"],
    size: int | None,
    mode: Mode | None,
    how: dict[str, Any],
    options: dict[str, Any],
) -> Array:
    """See `array`."""
    if create is False and (size is not None or options):
        given = ", ".join(["size"] * (size is not None) + list(options))
        raise TypeError(f"{given} can only be chosen when an object is created: add create=True")
    if how["order"] not in (None, "C", "F"):
        raise InvalidError(22, f"order {how['order']!r} is neither 'C' nor 'F'")
    opened = None if create == "new" else _open_if_there(host, name, mode, must=not create)
    was_there = opened is not None
    if opened is None:
        try:
            opened = _create(host, name, shape, dtype, size, how, options)
        except ExistsError:
            # Another process was faster.
            if create == "new":
                raise
            opened = _open_if_there(host, name, mode, must=True)
            was_there = True
    with opened:
        if create and was_there:
            _check_is_the_same(opened, dtype, shape, how)
        return on_object(opened, dtype, shape, mode=mode, **how)


def _check_is_the_same(opened: Object, dtype: DType, shape: Shape | None, how: dict[str, Any]) -> None:
    """Refuses an object that is there, and is not what `create=True` would have made."""
    stored, stored_shape = parse(opened.tag)
    found = np.dtype(np.uint8) if stored is None else stored
    asked = storable(np.uint8 if dtype is None else dtype)
    advice = "leave create=True out to use what is there, or remove the object first"
    if found != asked:
        raise mismatch(f"object {opened.name} is there already, and holds {found.str}, not {asked.str}: {advice}")
    dims = None if shape is None else _dims(shape)
    if dims is not None and stored_shape is not None and dims != stored_shape:
        raise mismatch(f"object {opened.name} is there already with shape {stored_shape}, not {dims}: {advice}")
    order, stored_order = how["order"] or "C", order_of(opened.tag)
    if order != stored_order and len(stored_shape or ()) > 1:
        raise mismatch(f"object {opened.name} is there already with order {stored_order}, not {order}: {advice}")


def _open_if_there(host: "Host", name: str, mode: Mode | None, must: bool) -> Any:
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
    host: "Host", name: str, shape: Shape | None, dtype: DType, size: int | None, how: dict[str, Any],
    options: dict[str, Any],
) -> Object:  # fmt: skip
    elements = storable(np.uint8 if dtype is None else dtype)
    offset = operator.index(how["offset"])
    if shape is not None:
        nbytes = _nbytes(elements, _dims(shape))
        if nbytes == 0:
            raise InvalidError(22, f"an array of shape {_dims(shape)} is empty: an array has at least one element")
        needed = offset + nbytes
        if size is not None and size < needed:
            raise InvalidError(
                22, f"an array of {needed} bytes does not fit size {size}: leave the size out, or give more"
            )
        size = needed if size is None else size

    def tag(size_bytes: int) -> str:
        dims = ((size_bytes - offset) // elements.itemsize,) if shape is None else _dims(shape)
        return tag_of(elements, dims, how["order"] or "C")

    return host._create(name, size, tag, **options)


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
    tag = opened.tag
    if tag:
        elements, dims = agree(opened.name, tag, dtype, dims)
    else:
        elements = storable(np.uint8 if dtype is None else dtype)
    if dims is None:
        # As large as the object is now: another process may have changed it.
        dims = ((opened.size_by_now() - offset) // elements.itemsize,)
    order = _agreed_order(opened, order, dims)
    nbytes = _nbytes(elements, dims)
    if offset < 0 or nbytes <= 0 or offset + nbytes > opened.size_bytes:
        _refuse(opened, elements, dims, offset, nbytes)
    pages = opened.pages(
        offset, nbytes, mode, lock=lock, prefetch=prefetch, in_thread=in_thread, inherit=inherit
    )
    return np.ndarray(dims, elements, pages, offset % PAGE_SIZE_BYTES, None, order)  # type: ignore[arg-type]


def _agreed_order(opened: Object, order: Order | None, dims: tuple[int, ...]) -> Order:
    """The order of an array on an object, which may be recorded there."""
    stored: Order = "F" if order_of(opened.tag) == "F" else "C"
    recorded = len(parse(opened.tag)[1] or ()) > 1
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


def _nbytes(dtype: np.dtype[Any], dims: tuple[int, ...]) -> int:
    if any(n < 0 for n in dims):
        raise InvalidError(22, f"shape {dims} has a negative dimension")
    return math.prod(dims) * dtype.itemsize


def page_states(states: bytearray) -> States:
    """An array of page states."""
    return np.frombuffer(states, dtype=np.uint8)

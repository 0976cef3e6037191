"""Descriptions: how an object remembers the dtype and shape it was created with, as
`numpy:<u4:(-1, 64)`: as many rows of 64 as the object has room for. So an array follows the size of its object."""

from __future__ import annotations

import ast
import math
import re
from functools import lru_cache
from typing import Any

from ._errors import mismatch
from ._numpy import np

_PREFIX = "numpy:"
_DESCRIPTION_BYTES = 4096
# Behind the shape, where the first index runs fastest. Versions that do not know it refuse such a description.
_FORTRAN = ":F"
# A description that is nothing but a simple dtype, as other languages write it: <u4, |S8, <M8[ns].
_BARE = re.compile(r"[<>|=][a-zA-Z][0-9]+(\[[0-9a-zA-Z]+\])?")


def storable(dtype: Any) -> np.dtype[Any]:
    """The dtype that is meant, if its elements can lie in memory that other processes see. What refers to memory of this
    process must not: who wrote such elements would run code in whoever reads them."""
    found: np.dtype[Any] = np.dtype(dtype)
    if found.hasobject or not _is_bytes_alone(found):
        raise TypeError(f"dtype {found} holds references to memory of one process, which mean nothing to others")
    if found.itemsize == 0:
        raise TypeError(f"dtype {found} has elements of 0 bytes: say how long they are, as S16")
    return found


def _is_bytes_alone(dtype: np.dtype[Any]) -> bool:
    """Whether its elements are all of what they mean: of the kinds that NumPy has had for ever. Others may refer to more."""
    if dtype.fields is not None:
        return all(_is_bytes_alone(field[0]) for field in dtype.fields.values())
    if dtype.subdtype is not None:
        return _is_bytes_alone(dtype.subdtype[0])
    return dtype.kind in "biufcmMSUV"


def description_of(dtype: np.dtype[Any], shape: tuple[int, ...], order: str = "C", follows: bool = False) -> str:
    """The description of an object that holds such an array. Of one dimension both orders are the same. `follows`: the
    dimension whose index runs slowest is as long as the object has room for."""
    text = _text(dtype)
    if follows:
        shape = (*shape[:-1], -1) if order == "F" else (-1, *shape[1:])
    description = f"{_PREFIX}{text}:{tuple(int(n) for n in shape)!r}"
    if order == "F" and len(shape) > 1:
        description += _FORTRAN
    if len(description.encode()) > _DESCRIPTION_BYTES:
        raise TypeError(
            f"dtype {text} is too long to be recorded ({_DESCRIPTION_BYTES} bytes): create the object of bytes, and view it"
        )
    return description


@lru_cache(maxsize=256)
def parse(description: str) -> tuple[np.dtype[Any] | None, tuple[int, ...] | None]:
    """Dtype and shape that a description names, as far as it is one of ours. One number of the shape may be -1."""
    try:
        if description.startswith(_PREFIX):
            text, shape = description.removeprefix(_PREFIX).removesuffix(_FORTRAN).rsplit(":", 1)
            dims = ast.literal_eval(shape)
            if not (isinstance(dims, tuple) and all(type(n) is int and n >= -1 for n in dims) and dims.count(-1) <= 1):
                raise ValueError(shape)
            np.empty((0,) * len(dims), np.uint8)  # as many dimensions as an array may have
            return storable(_dtype(text)), dims
        if _BARE.fullmatch(description):
            return storable(description), None
    except Exception as error:  # whoever made the object wrote it
        if description.startswith(_PREFIX):
            raise mismatch(
                f"the description {description!r} is no NumPy type that this version knows: map the object, and view its bytes"
            ) from error
    return None, None


def order_of(description: str) -> str:
    """The order that a description of ours names."""
    return "F" if description.startswith(_PREFIX) and description.endswith(_FORTRAN) else "C"


def agree(
    name: str, description: str, dtype: Any, shape: tuple[int, ...] | None
) -> tuple[np.dtype[Any], tuple[int, ...] | None]:
    """What to make of an object with that description, when this dtype and shape are asked for."""
    stored, stored_shape = parse(description)
    if dtype is None:
        return (np.dtype(np.uint8), shape) if stored is None else (stored, stored_shape if shape is None else shape)
    asked = storable(dtype)
    if stored is None:
        return asked, shape
    if stored != asked:
        raise mismatch(
            f"object {name} holds {_text(stored)}, and {_text(asked)} was asked for: "
            f"leave the dtype out, and view the array as what you need"
        )
    return asked, stored_shape if shape is None else shape


# Words that NumPy has no dtype for, or the same word.
_WORDS = {"bytes", "char", "offset", "bfloat16", "int128", "uint128"}


def words_of(what: Any) -> str:
    """What hosts of other machine types are told of elements of this dtype, or such words themselves. The byte order that a
    dtype names does not count: that of the host's machine is meant."""
    if isinstance(what, str) and (what in _WORDS or what.startswith(("{", "#"))):
        return what
    dtype = storable(what)
    fields = _fields(dtype, 0)
    if len(fields) == 1 and fields[0][0] == 0 and fields[0][2] * _size(fields[0][1]) == dtype.itemsize:
        return fields[0][1]
    return f"{{{dtype.itemsize}: " + ", ".join(f"{at} {word}*{n}" if n > 1 else f"{at} {word}" for at, word, n in fields) + "}"


def _fields(dtype: np.dtype[Any], begin: int) -> list[tuple[int, str, int]]:
    """Offset, word and number of each of its numbers."""
    if dtype.names is not None and dtype.fields is not None:
        inside = [_fields(of, begin + at) for of, at in sorted((f[:2] for f in dtype.fields.values()), key=lambda f: f[1])]
        return [field for of in inside for field in of]
    if dtype.subdtype is not None:
        of, shape = dtype.subdtype
        each = _fields(of, begin)
        times = math.prod(shape)
        if len(each) == 1 and each[0][2] * _size(each[0][1]) == of.itemsize:
            return [(begin, each[0][1], each[0][2] * times)]
        return [(at + n * of.itemsize, word, many) for n in range(times) for at, word, many in each]
    size = dtype.itemsize
    match dtype.kind:
        case "b" | "S" | "V":
            return [(begin, "bytes", size)]
        case "i" | "u":
            return [(begin, f"int{8 * size}", 1)]
        case "M" | "m":
            return [(begin, "int64", 1)]
        case "U":
            return [(begin, "int32", size // 4)]
        case "f" if size <= 8:
            return [(begin, f"float{8 * size}", 1)]
        case "c" if size <= 16:
            return [(begin, f"float{4 * size}", 2)]
    raise TypeError(f"dtype {dtype} has no counterpart on other machines: leave its pages without a tag")


def _size(word: str) -> int:
    """Bytes of one such number."""
    return 1 if word == "bytes" else int(word.lstrip("intfloa")) // 8


def _text(dtype: np.dtype[Any]) -> str:
    """A dtype in words that make the same dtype again."""
    text = dtype.str
    if dtype.names is not None or dtype.subdtype is not None:
        text = repr(np.lib.format.dtype_to_descr(dtype))
    if _dtype(text) != dtype:
        raise TypeError(f"dtype {dtype} cannot be recorded in an object: create it as {dtype.str}, and view it")
    return text


def _dtype(text: str) -> np.dtype[Any]:
    """The dtype that `_text` put in words."""
    if text.startswith(("[", "(")):
        found: np.dtype[Any] = np.lib.format.descr_to_dtype(ast.literal_eval(text))
        return found
    return np.dtype(text)

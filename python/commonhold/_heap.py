"""Heaps: blocks that any process allocates and any other frees, as arrays of NumPy or as buffers."""

import math
import os
from typing import Any, Literal

from . import _native
from ._errors import InvalidError
from ._host import Host, default_host
from ._numpy import np
from ._types import storable
from ._typing import Array, DType, Name, Shape


def type_of(dtype: DType) -> str:
    """The type of a heap that a dtype is (docs/TYPES.md); `bytes`, if it is none."""
    elements = np.dtype(dtype)
    if elements.names is not None and elements.fields is not None:
        parts = []
        for name in sorted(elements.names, key=lambda name: elements.fields[name][1]):
            field, offset = elements.fields[name][:2]
            count = math.prod(field.shape)
            one = type_of(field.base)
            if one.startswith("{") or count == 0:
                return "bytes"
            # Of bytes there are as many as the field has.
            count *= field.base.itemsize if one == "bytes" else 1
            parts.append(f"{offset} {one}" + (f"*{count}" if count != 1 else ""))
        return f"{{{elements.itemsize}: {', '.join(parts)}}}"
    if elements.byteorder == ">" or (elements.kind in "iuf" and elements.itemsize > 8):
        return "bytes"
    words = {"i": "int", "u": "int", "b": "int", "f": "float"}
    word = words.get(elements.kind)
    return "bytes" if word is None else f"{word}{8 * elements.itemsize}"


class Heap:
    """A heap in an object: blocks that any process allocates and any other frees.

        heap = ch.Heap("/lab/heap", size=1 << 30)     # opens it; creates it if there is none
        samples = heap.array(1000, "f8")              # a NumPy array in it, of zeros
        heap.store(heap.root("samples"), heap.offset(samples))   # others find it by that name
        heap.free(samples)

    A block is known by its offset in the object, which is the same for all. It stays until it is freed: an array that
    is dropped frees nothing, and one that was freed is not to be used any more, as with C's free(). `create`: `False`
    only opens, `"new"` refuses one that is there. Whoever uses it needs reading and writing (`mode`).
    """

    def __init__(
        self,
        name: Name,
        create: bool | Literal["new"] = True,
        *,
        size: int | None = None,
        mode: int = 0o600,
        host: Host | None = None,
    ) -> None:
        where = (default_host() if host is None else host)._native
        self.name = name = os.fspath(name)
        if create is False or (create is True and size is None):
            self._heap = _native.Heap.open(where, name)
        elif size is None:
            raise InvalidError(22, f"heap {name} cannot be created without its size: give one")
        else:
            self._heap = _native.Heap.create(where, name, size, mode, create is True)

    def allocate(self, of: str, count: int = 1) -> int:
        """Allocates elements of a type (`float64`, `{24: 0 int32, 8 float64*2}`); gives the offset. What is in them is
        what was there before."""
        return self._heap.allocate(of, count)

    def allocate_into(self, of: str, count: int, word: int) -> int:
        """Allocates, and stores the offset in the heap's word at `word`, which is 0 before: whoever dies meanwhile
        leaves both or none."""
        return self._heap.allocate_into(of, count, word)

    def free(self, block: "int | Array") -> None:
        """Frees a block: its offset, or an array that begins with it. Whoever shows it must not use it any more."""
        self._heap.free(block if isinstance(block, int) else self.offset(block))

    def free_from(self, word: int) -> None:
        """Frees the block whose offset that word has, and makes the word 0: both or none."""
        self._heap.free_from(word)

    def array(self, shape: Shape, dtype: DType = "f8", *, zero: bool = True) -> Array:
        """Allocates a NumPy array. `zero=False`: what is in it is what was there before."""
        elements = storable(dtype)
        dims = (shape,) if isinstance(shape, int) else tuple(shape)
        if any(length < 0 for length in dims):
            raise InvalidError(22, f"no array of shape {dims} can be in a heap")
        of = type_of(elements)
        many = math.prod(dims) * (elements.itemsize if of == "bytes" else 1)
        if many == 0:
            raise InvalidError(22, f"an array of shape {dims} is empty: an array has at least one element")
        made = self.view(self._heap.allocate(of, many), dims, elements)
        if zero:
            np.ndarray(made.nbytes, np.uint8, buffer=self._heap.memory(self.offset(made), made.nbytes))[:] = 0
        return made

    def view(self, offset: int, shape: Shape, dtype: DType = "f8") -> Array:
        """The array that begins at an offset, without a copy."""
        elements = np.dtype(dtype)
        dims = (shape,) if isinstance(shape, int) else tuple(shape)
        memory = self._heap.memory(offset, math.prod(dims) * elements.itemsize)
        return np.ndarray(dims, elements, buffer=memory)

    def memory(self, offset: int, nbytes: int) -> Any:
        """Bytes of the heap as a buffer, for `memoryview`, `pyarrow.py_buffer` and their like, without a copy. They stay
        mapped as long as anything shows them."""
        return self._heap.memory(offset, nbytes)

    def offset(self, array: Array) -> int:
        """Where an array of this heap begins."""
        return self._heap.offset(array.__array_interface__["data"][0])

    def root(self, name: str) -> int:
        """The offset of the word of a root, by its name; one that is new is 0."""
        return self._heap.root(name)

    def load(self, word: int) -> int:
        """The word at an offset, a multiple of 8."""
        return self._heap.load(word)

    def store(self, word: int, value: int) -> None:
        """Changes it. What is shown to others by it was written before."""
        self._heap.store(word, value)

    def check(self) -> list[tuple[int, str]]:
        """What is wrong in the heap: where, and what. Nothing: it is whole."""
        return self._heap.check()[2]

    @property
    def used(self) -> tuple[int, int]:
        """Blocks in use, and their bytes; the whole heap is read for it."""
        return self._heap.check()[:2]

    def close(self) -> None:
        """Gives it up. Arrays and buffers that show it stay; so does the heap, and what is in use in it."""
        self._heap.close()

    def __enter__(self) -> "Heap":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Heap({os.fspath(self.name)!r})"

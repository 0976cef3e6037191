"""Data with ordinary pointers that has one address in every process: built once, included by any in microseconds.

    import ctypes
    from commonhold import image

    class Word(ctypes.Structure):
        pass
    Word._fields_ = [("text", image.Text), ("count", ctypes.c_uint32), ("next", ctypes.POINTER(Word))]

    with image.Arena("words@1.0.0") as arena:
        second = arena.new(Word, text="second", count=1)
        first = arena.new(Word, text="first", count=2, next=second)
        arena.root("list", first)
        arena.root("squares", arena.array(numpy.arange(10) ** 2))
        arena.seal()

    words = image.include("words@1")            # any process; nothing is parsed or copied
    print(words.root("list", Word).next.contents.text)
    squares = words.array("squares", "i8")      # a NumPy array on the image's own memory

Types are those of `ctypes`, with `Text`, `Char`, `run_of(T)`, `reference(T)` (a pointer that is never null) and
`choice(E, T)` (an enumeration) beside them; arrays have dtypes of NumPy. C and Rust read such images, and Python theirs, if
sizes, offsets and names of fields are the same.

No host is needed. An image is read-only: an array says so, and a `ctypes` structure of it ends the process when it is
written, as in C.
"""

import ctypes as _c
import enum as _enum
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ._native import Arena as _Arena
from ._native import Image as _Image
from ._native import include_image as _include_image

__all__ = ["Arena", "Char", "Image", "Text", "choice", "include", "reference", "run_of"]

_Row = tuple[str, str, int, int, int, list[tuple[str, int, int, int]]]

_SCALARS = {
    **dict.fromkeys("BHILQ", "unsigned"),
    **dict.fromkeys("bhilq", "signed"),
    **dict.fromkeys("fd", "float"),
    "?": "bool",
}
_RUNS: dict[type, type] = {}
_REFERENCES: dict[type, type] = {}
_CHOICES: dict[tuple[type, type], type] = {}


class _Run(_c.Structure):
    """A pointer and a count; a sequence of what it leads to."""

    _of_: Any

    def _values(self) -> Any:
        count = self.count
        address = _c.cast(self.first, _c.c_void_p).value if count else None
        return (self._of_ * count).from_address(address) if address else (self._of_ * 0)()

    def __len__(self) -> int:
        return int(self.count)

    def __getitem__(self, index: Any) -> Any:
        return self._values()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values())


class Text(_c.Structure):
    """Text in UTF-8; `str()` of it copies it out."""

    _fields_ = [("first", _c.c_void_p), ("count", _c.c_size_t)]

    def __str__(self) -> str:
        return _c.string_at(self.first, self.count).decode() if self.count else ""

    def __len__(self) -> int:
        return int(self.count)

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, str | Text) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))


class Char(_c.c_uint32):
    """A character of Unicode, Rust's `char`; `str()` of it is that character."""

    def __str__(self) -> str:
        return chr(self.value)


class _Choice:
    """One of the members of an enumeration."""

    _of_: type[_enum.IntEnum]
    value: int

    @property
    def member(self) -> _enum.IntEnum:
        """Which."""
        return self._of_(self.value)


def choice(of: type[_enum.IntEnum], made_of: Any) -> type:
    """The type of an enumeration that is a number of `ctypes`, such as `c_uint8`; `member` of a value says which it is.

    Another number than those of its members is refused at sealing.
    """
    if (of, made_of) not in _CHOICES:
        if getattr(made_of, "_type_", "") not in set("BHILQbhilq"):
            raise TypeError(f"an enumeration is made of a number such as c_uint8, not of {made_of.__name__}")
        _CHOICES[of, made_of] = type(f"{of.__name__}_of_{made_of.__name__}", (_Choice, made_of), {"_of_": of})
    return _CHOICES[of, made_of]


def run_of(of: type) -> type:
    """The type of any number of values one behind the other: a pointer and a count; a sequence to Python."""
    if of not in _RUNS:
        fields = {"_fields_": [("first", _c.POINTER(of)), ("count", _c.c_size_t)], "_of_": of}
        _RUNS[of] = type(f"run_of_{of.__name__}", (_Run,), fields)
    return _RUNS[of]


def reference(to: type) -> type:
    """The type of a pointer that is never null; `ctypes.POINTER` is one that may be."""
    if to not in _REFERENCES:
        _REFERENCES[to] = type(f"reference_to_{to.__name__}", (_c._Pointer,), {"_type_": to})
    return _REFERENCES[to]


def _fields(of: Any) -> Iterator[tuple[str, Any, list[int], Any]]:
    """Name, type, bits and descriptor of each field of a structure: first those of what it extends, as they lie."""
    for part in reversed(of.__mro__):
        for name, inner, *bits in part.__dict__.get("_fields_", ()):
            yield name, inner, bits, part.__dict__[name]


def _is_swapped(of: Any) -> bool:
    """Whether a number of ctypes is of the byte order that this machine does not have."""
    little, big = (getattr(of, f"__ctype_{order}__", of) for order in ("le", "be"))
    native, other = (little, big) if sys.byteorder == "little" else (big, little)
    return native is not other and issubclass(of, other)


class _Table:
    """Types, each with its place, as the native part takes them."""

    def __init__(self) -> None:
        self.rows: list[_Row | None] = []
        self._places: dict[Any, int] = {}

    def _add(self, key: Any, name: str, kind: str, nbytes: int, alignment: int, of: int = 0) -> int:
        if key not in self._places:
            self._places[key] = len(self.rows)
            self.rows.append((name, kind, nbytes, alignment, of, []))
        return self._places[key]

    def _scalar(self, kind: str, nbytes: int) -> int:
        return self._add((kind, nbytes), kind, kind, nbytes, nbytes)

    def _leads(self, key: type, kind: str, to: Any) -> int:
        # Its place comes first: what it leads to may lead back to it.
        if key in self._places:
            return self._places[key]
        place = self._places[key] = len(self.rows)
        self.rows.append(None)
        nbytes = 16 if kind == "run" else 8
        self.rows[place] = (key.__name__, kind, nbytes, 8, self.ctype(to), [])
        return place

    def ctype(self, of: Any) -> int:
        """The place of a type of ctypes."""
        if of is Text:
            place = self._places.get(of)
            if place is None:
                place = self._places[of] = len(self.rows)
                self.rows.append(None)
                self.rows[place] = ("Text", "run", 16, 8, self._scalar("utf8", 1), [])
            return place
        if issubclass(of, _Run):
            return self._leads(of, "run", of._of_)
        if issubclass(of, _c._Pointer):
            return self._leads(of, "reference" if of in _REFERENCES.values() else "pointer", of._type_)
        if issubclass(of, _c.Structure):
            return self._structure(of)
        if issubclass(of, Char):
            return self._scalar("char", 4)
        if issubclass(of, _Choice):
            return self._choice(of)
        code = getattr(of, "_type_", None)
        if issubclass(of, _c._SimpleCData) and code in _SCALARS:
            if _is_swapped(of):
                raise TypeError(f"{of.__name__} of the other byte order cannot be in an image: this machine's can")
            return self._scalar(_SCALARS[code], _c.sizeof(of))
        raise TypeError(f"{of.__name__} cannot be in an image: structures, numbers, POINTER, Text, run_of can")

    def _choice(self, of: Any) -> int:
        if of in self._places:
            return self._places[of]
        nbytes = _c.sizeof(of)
        place = self._add(of, of._of_.__name__, "choice", nbytes, nbytes)
        for name, member in of._of_.__members__.items():
            if of(member).value != member:
                raise TypeError(f"{of._of_.__name__}.{name} is {int(member)}, which has no room in {nbytes} bytes")
            self.rows[place][5].append((name, member & (1 << 8 * nbytes) - 1, 0, 0))  # type: ignore[index]
        return place

    def _structure(self, of: Any) -> int:
        if of in self._places:
            return self._places[of]
        place = self._add(of, of.__name__, "struct", _c.sizeof(of), _c.alignment(of))
        for name, inner, bits, field in _fields(of):
            if bits:
                raise TypeError(f"{of.__name__}.{name} is a bit field, which cannot be in an image")
            count = 0
            if issubclass(inner, _c.Array):
                inner, count = inner._type_, inner._length_
            entry = (name, field.offset, self.ctype(inner), count)
            self.rows[place][5].append(entry)  # type: ignore[index]
        return place

    def dtype(self, of: Any) -> int:
        """The place of a dtype of NumPy."""
        if of.names is None:
            kind = {"u": "unsigned", "i": "signed", "f": "float", "b": "bool"}.get(of.kind)
            if kind is None or not of.isnative:
                raise TypeError(f"an array of {of} cannot be in an image: numbers of this machine's byte order can")
            return self._scalar(kind, of.itemsize)
        alignment = of.alignment
        place = self._add(str(of), str(of), "struct", of.itemsize, alignment)
        for name in of.names:
            inner, offset = of.fields[name][:2]
            count = 0
            if inner.subdtype is not None:
                inner, shape = inner.subdtype
                count = 1
                for length in shape:
                    count *= length
            self.rows[place][5].append((name, offset, self.dtype(inner), count))  # type: ignore[index]
        return place

    @classmethod
    def of(cls, kind: Any) -> list[_Row]:
        table = cls()
        if isinstance(kind, type) and issubclass(kind, _c.Structure | _c._SimpleCData | _c._Pointer):
            table.ctype(kind)
        else:
            import numpy

            table.dtype(numpy.dtype(kind))
        return table.rows  # type: ignore[return-value]


class Image:
    """An image that is part of this process, until it ends."""

    def __init__(self, native: _Image) -> None:
        self._native = native

    def __repr__(self) -> str:
        return f"<image {self.name}@{self.version} at {self._native.address:#x}>"

    @property
    def name(self) -> str:
        """Its name."""
        return self._native.name

    @property
    def version(self) -> str:
        """Its version, such as `1.2.0`."""
        return self._native.version

    @property
    def build_id(self) -> str:
        """The hash of all its bytes."""
        return self._native.build_id

    @property
    def roots(self) -> list[str]:
        """What can be found by name."""
        return self._native.roots

    def root(self, name: str, of: Any) -> Any:
        """The value of that name, a `ctypes` structure or number on the image's own memory."""
        address, count = self._native.find(name, _Table.of(of))
        if count != 1:
            raise TypeError(f"{name} is {count} values: ask for run() or array()")
        return of.from_address(address)

    def run(self, name: str, of: Any) -> Any:
        """All values of that name, a `ctypes` array on the image's own memory."""
        address, count = self._native.find(name, _Table.of(of))
        return (of * count).from_address(address)

    def view(self, name: str, of: Any) -> memoryview:
        """The bytes of all values of that name, read-only."""
        import numpy

        nbytes = _c.sizeof(of) if isinstance(of, type(_c.Structure)) else numpy.dtype(of).itemsize
        address, count = self._native.find(name, _Table.of(of))
        return memoryview((_c.c_char * (nbytes * count)).from_address(address)).cast("B").toreadonly()

    def array(self, name: str, dtype: Any) -> Any:
        """All values of that name as a NumPy array on the image's own memory, read-only."""
        import numpy

        dtype = numpy.dtype(dtype)
        return numpy.frombuffer(self.view(name, dtype), dtype)


def include(name: str, *, store: str | Path | None = None, newest: bool = False) -> Image:
    """Includes the newest version of `words`, `words@1`, `words@1.2` or `words@1.2.3`, with what it leads into.

    What this process has and fits is the answer; `newest` looks again. `store`: look there alone.
    """
    return Image(_include_image(name, None if store is None else Path(store), newest))


class Arena:
    """An image that is being built. What it gave may not be used after `close`, nor after its `with` block.

    `group`: images of one group are declared never to be in one process, and share addresses. `imports`: images that it
    may lead into. An arena that is not closed keeps its memory and its addresses until the process ends.
    """

    def __init__(
        self,
        name: str,
        *,
        store: str | Path | None = None,
        group: str | None = None,
        capacity_bytes: int | None = None,
        imports: Sequence[Image] = (),
    ) -> None:
        where = None if store is None else Path(store)
        self._native = _Arena(name, where, group, capacity_bytes, [image._native for image in imports])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def new(self, of: Any, **fields: Any) -> Any:
        """A structure in the arena, zero but for these fields. Text may be given as `str`, pointers as structures."""
        made = of.from_address(self._native.take(_c.sizeof(of), _c.alignment(of)))
        for name, value in fields.items():
            setattr(made, name, self._fitting(getattr(type(made), name, None), of, name, value))
        return made

    def _fitting(self, field: Any, of: Any, name: str, value: Any) -> Any:
        kind = {name: kind for name, kind, *_ in _fields(of)}.get(name)
        if field is None or kind is None:
            raise TypeError(f"{of.__name__} has no field {name}")
        if kind is Text and isinstance(value, str):
            return self.text(value)
        if issubclass(kind, _Run) and not isinstance(value, kind):
            return self.run(kind._of_, value)
        if issubclass(kind, _c._Pointer) and isinstance(value, kind._type_):
            return _c.cast(_c.addressof(value), kind)
        return value

    def text(self, text: str) -> Text:
        """Text in the arena."""
        data = text.encode()
        address = self._native.take(len(data), 1)
        _c.memmove(address, data, len(data))
        return Text(address, len(data))

    def run(self, of: Any, values: Sequence[Any]) -> Any:
        """Values in the arena, one behind the other; of pointers, structures may be given."""
        address = self._native.take(_c.sizeof(of) * len(values), _c.alignment(of))
        placed = (of * len(values)).from_address(address)
        for index, value in enumerate(values):
            is_target = issubclass(of, _c._Pointer) and isinstance(value, of._type_)
            placed[index] = _c.cast(_c.addressof(value), of) if is_target else value
        kind = run_of(of)
        return kind(_c.cast(address, _c.POINTER(of)), len(values))

    def array(self, values: Any) -> Any:
        """A copy of a NumPy array in the arena, which can be changed until the image is sealed."""
        import numpy

        values = numpy.ascontiguousarray(values)
        address = self._native.take(values.nbytes, max(values.dtype.alignment, 1))
        placed = numpy.frombuffer((_c.c_char * values.nbytes).from_address(address), values.dtype)
        placed[...] = values.reshape(-1)
        return placed

    def root(self, name: str, value: Any) -> None:
        """Makes a structure, run or array of the arena be found by name."""
        if isinstance(value, _Run):
            first = _c.cast(value.first, _c.c_void_p).value or 0
            self._native.root(name, first, len(value), _Table.of(value._of_))
        elif isinstance(value, _c.Structure | _c._SimpleCData):
            self._native.root(name, _c.addressof(value), 1, _Table.of(type(value)))
        elif hasattr(value, "__array_interface__"):
            if value.__array_interface__.get("strides") is not None:
                raise TypeError(f"the array {name} does not lie in one piece: give arena.array() of it")
            first = value.__array_interface__["data"][0]
            self._native.root(name, first, value.size, _Table.of(value.dtype))
        else:
            raise TypeError(f"{type(value).__name__} is no structure, run or array of an arena")

    def seal(self) -> tuple[str, Path]:
        """Follows all pointers, writes the image and publishes it. Gives its build ID and its file.

        A pointer that leads out of the arena and of what it imports raises `InvalidError`, which tells the way to it;
        then nothing was published.
        """
        build_id, path = self._native.seal()
        return build_id, Path(path)

    def close(self) -> None:
        """Gives the memory back."""
        self._native.close()

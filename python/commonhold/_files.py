"""Backing files of objects."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeAlias

from ._errors import invalid, not_found


class _HasDescriptor(Protocol):
    def fileno(self) -> int: ...


File: TypeAlias = str | os.PathLike[str] | int | _HasDescriptor


@contextmanager
def backing(file: File | None, size: int | None) -> Iterator[tuple[int | None, int]]:
    """The descriptor of a backing file, and the size of the object on it.

    A path that is not there is made if the size is known, and taken away again if the object cannot be created."""
    if file is None:
        if size is None:
            raise invalid("how large is the object to be? give a size, or a file that has one")
        yield None, size
        return
    if not isinstance(file, (str, os.PathLike)):
        descriptor = file if isinstance(file, int) else file.fileno()
        yield descriptor, os.fstat(descriptor).st_size if size is None else size
        return
    made = False
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        if size is None:
            raise not_found(f"there is no file {os.fspath(file)!r}: name one, or give the size to make it") from None
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, 0o666)
        made = True
    try:
        if made and size is not None:
            os.truncate(descriptor, size)
        yield descriptor, os.fstat(descriptor).st_size if size is None else size
    except BaseException:
        if made:
            os.unlink(file)
        raise
    finally:
        os.close(descriptor)

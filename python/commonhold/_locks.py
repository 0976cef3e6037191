"""Holding pages for the length of a block."""

from collections.abc import Iterator
from contextlib import contextmanager

from ._native import Mapping, Object, lock, unlock
from ._typing import Buffer


@contextmanager
def locked(target: Buffer | Mapping | Object) -> Iterator[bool]:
    """Holds the pages in memory and away from the pager within a `with` block; gives whether they are pinned. It keeps
    nobody out: `commonhold.Mutex` does.

    Letting go makes them the pager's to take: sync them in the block if their order matters."""
    pinned = lock(target)
    try:
        yield pinned
    finally:
        unlock(target)

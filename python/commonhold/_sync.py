"""Locks by name in other processes: `Mutex` and its like are pickled by name, never by content."""

import os
from typing import Any

from ._errors import lost
from ._host import Host


def open_same(
    kind: Any, state_directory: os.PathLike[str], name: str, uuid: int, index: int, others: tuple[Any, ...]
) -> Any:
    """Opens one by name, unless the object is another one by now. `others`: what else its class is opened with."""
    opened = kind(name, *others, create=False, host=Host(state_directory))
    if opened._uuid != uuid:
        opened.close()
        raise lost(f"object {name} was replaced by another of that name: pass it anew")
    return opened[index] if index else opened

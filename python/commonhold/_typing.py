"""Types that the signatures of this package use."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from ._files import File

# `collections.abc.Buffer` is there from Python 3.12 on.
Buffer: TypeAlias = Any
if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]
    DType: TypeAlias = npt.DTypeLike | None
    States: TypeAlias = npt.NDArray[np.uint8]
else:
    # They are there without NumPy, too.
    Array = DType = States = Any
Name: TypeAlias = str | os.PathLike[str]
Shape: TypeAlias = int | Sequence[int]
Inherit: TypeAlias = Literal["share", "copy", "none"]
Mode: TypeAlias = Literal["r", "r+", "rw", "c"]
Sync: TypeAlias = Literal["plain", "ordered", "atomic"]
Order: TypeAlias = Literal["C", "F"]
PageIn: TypeAlias = Callable[[str, int, int], Buffer]
PageOut: TypeAlias = Callable[[str, int, bytes], object]


class CreateOptions(TypedDict, total=False):
    """What an object is created with, beside name, size and description: see `commonhold.create`."""

    file: File | None
    pager: str | None
    sync: Sync
    permissions: int
    controlled: bool
    freezable: bool
    reserve: bool | None
    on_last_death: Literal["keep", "revert"]
    budget: int | None
    fault_deadline_ms: int | None
    pager_deadline_ms: int | None
    coherence: Literal["local", "strict", "explicit"]
    on_loss: Literal["error", "revert"]
    scheduler: Literal["central", "forwarding"] | None
    page_size: int | None
    replicas: int
    home_moves: bool
    translation: Literal["paged", "shared-tables", "shared-tables-4k", "wired"]
    fixed: bool
    room: int | None
    ephemeral: bool | float


def check_options(function: str, options: CreateOptions) -> None:
    """Refuses what is no option, before anything is done."""
    for word in options:
        if word not in CreateOptions.__annotations__:
            from difflib import get_close_matches

            near = get_close_matches(word, CreateOptions.__annotations__, 1)
            meant = f": is {near[0]} meant?" if near else ""
            raise TypeError(f"{function}() has no option {word!r}{meant}")

"""Types that the signatures of this package use."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

# `collections.abc.Buffer` is there from Python 3.12 on.
Buffer: TypeAlias = Any
Array: TypeAlias = npt.NDArray[Any]
DType: TypeAlias = npt.DTypeLike | None
Shape: TypeAlias = int | Sequence[int]
Inherit: TypeAlias = Literal["share", "copy", "none"]
Mode: TypeAlias = Literal["r", "r+", "rw", "c"]
Sync: TypeAlias = Literal["plain", "ordered", "atomic"]
Order: TypeAlias = Literal["C", "F"]
States: TypeAlias = npt.NDArray[np.uint8]

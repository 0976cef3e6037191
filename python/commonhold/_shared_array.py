"""Arrays on objects, as other processes get them: by where they are, not by what is in them."""

import sys
from typing import TYPE_CHECKING, Any

from ._errors import Error
from ._numpy import HAS_NUMPY, np
from ._types import storable

if TYPE_CHECKING or HAS_NUMPY:

    class SharedArray(np.ndarray[Any, np.dtype[Any]] if TYPE_CHECKING else np.ndarray):
        """A NumPy array on an object. What is computed from it is an ordinary array.

        To another process it is pickled as its place: the process gets the same pages. So it goes through `multiprocessing`,
        `concurrent.futures`, joblib and dask. One that is pickled into a file is only of use as long as the object is there:
        `numpy.save` keeps what is in it. A copy of it, and one that was mapped copy-on-write, is pickled by content.
        """

        __slots__ = ()

        def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
            if array is self:
                return array  # as `out`, or by `+=`
            return array[()] if return_scalar or array.ndim == 0 else np.asarray(array)

        def __reduce_ex__(self, protocol: Any) -> Any:
            from ._handles import array_of, place_of

            try:
                place = place_of(self)
            except Error as error:
                error.strerror = f"{error.strerror}; give other processes array.copy() if a copy is meant"
                raise
            if place is None:
                return np.asarray(self).__reduce_ex__(protocol)
            return array_of, place

        def __reduce__(self) -> Any:
            return self.__reduce_ex__(2)

else:
    SharedArray = np


def on_pages(
    pages: Any, offset: int, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None = None,
    order: Any = "C",
) -> Any:  # fmt: skip
    """An array that begins so many bytes into mapped pages. Its dtype may be what somebody else said: it is looked at."""
    dtype = storable(dtype)
    if "distributed.protocol" in sys.modules:
        from ._dask import register_if_used

        register_if_used()
    return SharedArray(shape, dtype, pages, offset, strides, order)

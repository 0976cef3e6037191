"""How dask's workers are sent arrays: as all others, by reference. It would look into them, and send what is in them."""

import pickle
import sys
from typing import Any

from ._shared_array import SharedArray

_is_registered = False


def register_if_used() -> None:
    """Registers with `distributed`, if it has been imported."""
    global _is_registered
    if _is_registered or "distributed.protocol" not in sys.modules:
        return
    serialization = sys.modules["distributed.protocol"]
    if not hasattr(serialization, "dask_serialize"):
        return  # it is being imported
    _is_registered = True

    def serialize(array: SharedArray) -> tuple[dict[str, Any], list[bytes]]:
        return {}, [pickle.dumps(array)]

    def deserialize(_header: dict[str, Any], frames: list[bytes]) -> Any:
        return pickle.loads(frames[0])

    serialization.dask_serialize.register(SharedArray)(serialize)
    serialization.dask_deserialize.register(SharedArray)(deserialize)

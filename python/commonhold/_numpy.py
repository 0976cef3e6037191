"""NumPy, if it is installed. Objects, mappings, locks and messages of bytes need none."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    HAS_NUMPY = True
else:

    class _Missing:
        """Stands where NumPy would: whoever needs it is told so."""

        def __init__(self, why):
            self._why = why

        def __getattr__(self, _name):
            raise ImportError(
                f"arrays need NumPy, which cannot be imported ({self._why}): pip install numpy. Bytes need none: "
                f"commonhold.open(name).map() gives them"
            )

        __call__ = __getattr__

    try:
        import numpy as np
    except ImportError as error:
        np = _Missing(error)
    HAS_NUMPY = not isinstance(np, _Missing)

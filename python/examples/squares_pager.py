"""A pager in Python: an object whose pages are computed when they are touched. Element i of it is i * i.

python squares_pager.py serve &
python squares_pager.py show 1000000
"""

import sys

import commonhold as ch
import numpy as np

PAGER = "/examples/squares-pager"
NAME = "/examples/squares"
ELEMENTS = 1 << 32  # 32 GiB of squares, of which only the touched pages ever exist


def page_in(_object: str, offset: int, length: int) -> np.ndarray:
    first = offset // 8
    return np.arange(first, first + length // 8, dtype="u8") ** 2


def serve() -> None:
    try:
        ch.serve_pager(PAGER, page_in)  # no page_out: nobody can change the squares for good
    except KeyboardInterrupt:
        pass


def show(element: int) -> None:
    squares = ch.array(NAME, ELEMENTS, "u8", create=True, pager=PAGER, pager_deadline_ms=5000)
    print(squares[element])


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    elif len(sys.argv) == 3 and sys.argv[1] == "show":
        show(int(sys.argv[2]))
    else:
        sys.exit(__doc__)

"""The product of two square matrices, by rows, in NumPy: as matrix.c, but that a row is NumPy's product."""

from __future__ import annotations

import numpy as np
from shared import PAGE, Activities, pages


def main() -> None:
    activities = Activities("matrix.py", size=1024, steps=1)
    size, seed = activities.given.size, activities.given.seed
    # Rows of two activities are never in one page.
    row = pages(size * 8) if size * 8 >= PAGE else 1 << (size * 8 - 1).bit_length()
    matrix = pages(size * row)

    def matrices(memory: np.ndarray) -> list[np.ndarray]:
        parts = (memory[n * matrix :][: size * row].view("f8") for n in range(3))
        return [part.reshape(size, row // 8)[:, :size] for part in parts]

    def fill(memory: np.ndarray) -> None:
        random = np.random.default_rng(seed)
        for one in matrices(memory)[:2]:
            one[:] = random.integers(-8, 8, (size, size))

    a, b, c = matrices(activities.begin(3 * matrix, fill))
    rows = activities.share(size, max(1, PAGE // row))
    activities.start()
    for _ in range(activities.given.steps):
        np.matmul(a[rows], b, out=c[rows])
    activities.stop()
    # Elements are small whole numbers: sums are exact, and the product of whole numbers is equal or wrong.
    is_right = activities.me > 0 or np.array_equal(c, a.astype("i8") @ b.astype("i8"))
    activities.report(is_right)


if __name__ == "__main__":
    main()

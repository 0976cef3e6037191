"""An Arrow table that two hosts fill: its columns are blocks of a heap that both share, and nothing is copied.

alpha$ python arrow_table.py 0      fills its rows, waits for the other's, and shows the table
beta$  python arrow_table.py 1
"""

import sys
import time
from collections.abc import Callable

import commonhold as ch
import numpy as np
import pyarrow as pa

NAME, PARTS, ROWS, LIMIT_S = "/arrow/heap", 2, 100_000, 60
COLUMNS = {"time": "i8", "sensor": "i4", "reading": "f8"}


def fill(heap: ch.Heap, me: int) -> None:
    """This host's rows: a block for each column, in pages that it alone writes. Others find them by roots."""
    if heap.load(heap.root(f"rows/{me}")):
        sys.exit(f"{NAME} has the rows of part {me} already: `commonhold rm {NAME}`, and begin anew")
    rows = {name: heap.array(ROWS, dtype, zero=False) for name, dtype in COLUMNS.items()}
    rows["time"][:] = np.arange(ROWS) * PARTS + me
    rows["sensor"][:] = rows["time"] % 7
    rows["reading"][:] = rows["time"] % 1000 / 8
    for name, column in rows.items():
        heap.store(heap.root(f"{name}/{me}"), heap.offset(column))
    heap.store(heap.root(f"rows/{me}"), ROWS)  # last: who sees it sees all of them


def table(heap: ch.Heap) -> pa.Table:
    """The rows of all hosts, as they lie in the heap."""
    until(lambda: all(heap.load(heap.root(f"rows/{part}")) for part in range(PARTS)))
    columns = {}
    for name, dtype in COLUMNS.items():
        of = pa.from_numpy_dtype(np.dtype(dtype))
        blocks = [heap.load(heap.root(f"{name}/{part}")) for part in range(PARTS)]
        memory = [pa.py_buffer(heap.memory(block, ROWS * of.byte_width)) for block in blocks]
        columns[name] = pa.chunked_array([pa.Array.from_buffers(of, ROWS, [None, buffer]) for buffer in memory])
    return pa.table(columns)


def until(so: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not so():
        if time.monotonic() > end:
            sys.exit(f"the other part did not come within {LIMIT_S} s: `commonhold rm {NAME}`, and begin anew")
        time.sleep(0.01)


def is_there() -> bool:
    try:
        ch.stat(NAME)
    except ch.NotFoundError:
        return False
    return True


def main(me: int) -> None:
    if me == 0:
        ch.create(NAME, 64 << 20, description="heap", coherence="strict").close()
    until(is_there)
    heap = ch.Heap(NAME, create=False)
    fill(heap, me)
    both = table(heap)
    if me == 0:
        ch.remove(NAME)  # whoever has it open keeps it
    means = both.group_by("sensor").aggregate([("reading", "mean")]).sort_by("sensor")
    print(f"{both.num_rows} rows, sensors {means['sensor'].to_pylist()}")
    print(" ".join(f"{mean:.3f}" for mean in means["reading_mean"].to_pylist()))


if __name__ == "__main__":
    main(int(sys.argv[1]))

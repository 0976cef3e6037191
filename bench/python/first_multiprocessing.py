"""How long the first array on a shared memory segment of the standard library takes, in microseconds. Argument: its name."""

import sys
import time
from multiprocessing.resource_tracker import unregister
from multiprocessing.shared_memory import SharedMemory

import numpy as np

start = time.perf_counter()
opened = SharedMemory(name=sys.argv[1])
array = np.ndarray(opened.size, np.uint8, opened.buf)
seconds = time.perf_counter() - start
if array[0] != 1:
    raise SystemExit("the attached memory is not the segment")
unregister("/" + opened.name.lstrip("/"), "shared_memory")  # or the tracker removes what is another's
print(1e6 * seconds)

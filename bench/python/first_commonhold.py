"""How long the first array of a process takes, in microseconds. Arguments: state directory, object."""

import os
import sys
import time

os.environ["COMMONHOLD_HOST"] = sys.argv[1]

import commonhold as ch
import numpy as np

start = time.perf_counter()
array = ch.array(sys.argv[2], dtype=np.uint8)
seconds = time.perf_counter() - start
if array[0] != 1:
    raise SystemExit("the attached memory is not the object")
print(1e6 * seconds)

"""Watches the control loop of `examples/control.c` while it runs: the same memory, and no message.

python plot_state.py            until the loop ends
python plot_state.py /robot/state 20   so many lines, 20 a second
"""

import itertools
import sys
import time

import commonhold as ch
import numpy as np

STATE = np.dtype(
    [("count", "u8"), ("step", "u8"), ("target", "f8"), ("position", "f8"), ("velocity", "f8"), ("late_us", "f8")]
)
WIDTH = 61


def read(state: np.ndarray) -> np.void:
    """A state that was not being written: its count is even, and the same before and after."""
    while True:
        before = int(state["count"][0])
        copy = state[0].copy()
        if before % 2 == 0 and before == copy["count"] == int(state["count"][0]):
            return copy


def line(state: np.void) -> str:
    """Where the mass is (*) and where it should be (|), from -1.5 to 1.5."""
    marks = [" "] * WIDTH
    for value, mark in ((state["target"], "|"), (state["position"], "*")):
        marks[round(float(np.clip(value, -1.5, 1.5) + 1.5) / 3 * (WIDTH - 1))] = mark
    return f"{int(state['step']):8} [{''.join(marks)}] {float(state['late_us']):6.0f} us late"


def main(name: str, lines: int | None) -> None:
    while True:
        try:
            state = ch.open(name).array(STATE, 1)
            break
        except ch.NotFoundError:
            time.sleep(0.02)  # the loop has not begun
    last = -1
    for _ in range(lines) if lines else itertools.count():
        now = read(state)
        if int(now["step"]) == last and not lines:
            break  # the loop has ended: it stands still
        last = int(now["step"])
        print(line(now), flush=True)
        time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "/robot/state", int(sys.argv[2]) if len(sys.argv) > 2 else None)

"""Frames of a camera, given to another process without a copy.

The frames lie in one wired array. What goes through channels is which of them is new, and which may
be filled again.

python camera.py 300
"""

import multiprocessing as mp
import sys
import time

import commonhold as ch
import numpy as np

FRAMES, HEIGHT, WIDTH = 4, 480, 640
PIXELS, FULL, EMPTY = "/camera/frames", "/camera/full", "/camera/empty"
FRAME, END = 1, 2


def camera(count: int) -> None:
    """Takes pictures: of a bar that goes to the right."""
    frames, full, empty = ch.array(PIXELS, mode="r+"), ch.Channel(FULL), ch.Channel(EMPTY)
    for number in range(count):
        place = empty.receive(timeout=10).data[0]
        frames[place] = number % 256
        frames[place, :, number % WIDTH] = 255
        full.send(bytes([place]) + number.to_bytes(8, "little"), kind=FRAME, timeout=10)
    full.send(b"", kind=END, timeout=10)


def main(count: int) -> None:
    frames = ch.array(PIXELS, (FRAMES, HEIGHT, WIDTH), "u1", create="new", translation="wired")
    full, empty = ch.Channel.create(FULL, 4096), ch.Channel.create(EMPTY, 4096)
    for place in range(FRAMES):
        empty.send(bytes([place]))
    process = mp.get_context("spawn").Process(target=camera, args=(count,))
    process.start()
    seen, begun = 0, time.monotonic()
    while (message := full.receive(timeout=30)).kind == FRAME:
        place, number = message.data[0], int.from_bytes(message.data[1:], "little")
        frame = frames[place]  # the very memory that the camera wrote
        assert number == seen and frame[0, number % WIDTH] == 255 and frame[-1, number % WIDTH - 1] == number % 256
        seen += 1
        empty.send(bytes([place]), timeout=10)
    process.join()
    print(f"{seen} frames, {seen / (time.monotonic() - begun):.0f} a second, no copy")
    del frames
    full.close()
    empty.close()
    for name in (PIXELS, FULL, EMPTY):
        ch.remove(name)
    assert seen == count and process.exitcode == 0


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)

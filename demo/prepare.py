"""Finds the texts, and makes the object that the two programs fill. Usage: prepare.py NAME FILE"""

import os
import sys

import commonhold as ch
import numpy as np
from layout import DOCUMENT_BYTES, MAGIC, PAGE, POSTINGS, REGION_BYTES, SLOTS, WORD_BYTES

FOLDER = "/usr/share"
MOST_BYTES = 128 << 20


def is_text(path):
    try:
        with open(path, "rb") as file:
            return b"\0" not in file.read(4096)
    except OSError:
        return False


def texts():
    """Regular files of 1 byte to 1 MiB without a zero byte at the beginning, until there are 128 MiB of them."""
    total = 0
    for folder, folders, files in os.walk(FOLDER):
        folders.sort()
        for name in sorted(files):
            path = os.path.join(folder, name)
            size = 0 if os.path.islink(path) or not os.path.isfile(path) else os.path.getsize(path)
            if 0 < size <= DOCUMENT_BYTES and "\n" not in path and is_text(path):
                total += size
                if total > MOST_BYTES:
                    return
                yield path, size


def main(name, file):
    found = list(texts())
    paths = b"".join(os.fsencode(path) + b"\n" for path, _ in found)
    first = PAGE + -(-len(paths) // PAGE) * PAGE
    ch.create(name, first + 2 * REGION_BYTES, file=file, sync="atomic").close()
    content = ch.array(name)
    header = [MAGIC, len(found), PAGE, len(paths), first, first + REGION_BYTES, REGION_BYTES, SLOTS, WORD_BYTES, POSTINGS]
    content[: 8 * len(header)].view("u8")[:] = header
    content[PAGE : PAGE + len(paths)] = np.frombuffer(paths, "u1")
    ch.sync(content)
    megabytes = sum(size for _, size in found) / 1e6
    print(f"   {len(found)} texts under {FOLDER}, {megabytes:.0f} MB; object {name} of {len(content) >> 20} MiB is {file}")


if __name__ == "__main__":
    main(*sys.argv[1:])

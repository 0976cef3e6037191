"""Snapshots: arrays as they were."""

import subprocess
import sys
from pathlib import Path

import commonhold as ch
import numpy as np
import pytest

SIZE = 64 * 4096
EXAMPLE = Path(__file__).parent.parent / "examples" / "array_snapshot.py"


def test_an_array_as_it_was(name):
    counts = ch.array(name, (SIZE // 4,), np.uint32, create="new", freezable=True)
    counts[:] = np.arange(SIZE // 4)
    with ch.open(name, "r+") as counted:
        counted.snapshot(name + "@monday")
        clone = counted.snapshot(name + "-clone", 4096, 8192, writable=True).array(shape=2048)
    counts[:] = 0
    monday = ch.array(name + "@monday")
    assert ch.stat(name + "@monday").read_only and not ch.stat(name).read_only
    assert (monday == np.arange(SIZE // 4)).all()
    assert (clone == np.arange(1024, 1024 + 2048)).all()
    clone[:] = 5
    assert monday[1024] == 1024 and counts[1024] == 0
    counts[:] = monday  # and back
    assert counts[-1] == SIZE // 4 - 1
    with pytest.raises(ValueError):
        monday[0] = 1
    for end in ("@monday", "-clone"):
        ch.remove(name + end)


def test_what_is_refused(name, tmp_path):
    ch.create(name + "-plain", SIZE)
    ch.create(name, SIZE, freezable=True)
    with ch.open(name + "-plain", "r+") as plain, pytest.raises(ch.Error, match="freezable"):
        plain.snapshot(name + "@s")
    with ch.open(name + "-plain") as plain, pytest.raises(ch.Error, match="is memory"):
        plain.snapshot(name + "@s", file=tmp_path / "s.bin")
    assert not (tmp_path / "s.bin").exists()
    with ch.open(name) as reader, pytest.raises(ch.PermissionDeniedError, match="writing"):
        reader.snapshot(name + "@s")
    with ch.open(name, "r+") as counts:
        for offset, length in [(1, 4096), (SIZE, None), (0, SIZE + 1), (0, 0)]:
            with pytest.raises(ch.InvalidError, match="snapshot"):
                counts.snapshot(name + "@s", offset, length)
        counts.snapshot(name + "@s")
        with pytest.raises(ch.ExistsError):
            counts.snapshot(name + "@s")
    with pytest.raises(ch.PermissionDeniedError, match="snapshot"):
        ch.open(name + "@s", "r+")
    for end in ("@s", "-plain"):
        ch.remove(name + end)


def test_the_example():
    done = subprocess.run([sys.executable, str(EXAMPLE), str(4 << 20)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "at one instant" in done.stdout
    assert len(EXAMPLE.read_text().splitlines()) < 60

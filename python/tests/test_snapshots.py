"""Snapshots: arrays as they were."""

import commonhold as ch
import numpy as np
import pytest

SIZE = 64 * 4096


def test_an_array_as_it_was(host: object) -> None:
    counts = ch.array("/counts", (SIZE // 4,), np.uint32, create="new", freezable=True)
    counts[:] = np.arange(SIZE // 4)
    with ch.open("/counts", "r+") as counted:
        counted.snapshot("/counts@monday")
        clone = counted.snapshot("/clone", 4096, 8192, writable=True).array()
    counts[:] = 0
    monday = ch.array("/counts@monday")
    assert monday.dtype == np.uint32 and monday.shape == counts.shape
    assert (monday == np.arange(SIZE // 4)).all()
    assert (clone == np.arange(1024, 1024 + 2048)).all()
    clone[:] = 5
    assert monday[1024] == 1024 and counts[1024] == 0
    # And back.
    counts[:] = monday
    assert counts[-1] == SIZE // 4 - 1
    with pytest.raises(ValueError):
        monday[0] = 1


def test_what_is_refused(host: object) -> None:
    ch.create("/plain", SIZE)
    ch.create("/counts", SIZE, freezable=True)
    with ch.open("/plain", "r+") as plain, pytest.raises(ch.UnsupportedError, match="freezable"):
        plain.snapshot("/s")
    with ch.open("/counts") as reader, pytest.raises(ch.PermissionDeniedError, match="writing"):
        reader.snapshot("/s")
    with ch.open("/counts", "r+") as counts:
        for bad in [{"offset": 1}, {"offset": SIZE}, {"length": SIZE + 1}, {"length": 0}]:
            with pytest.raises(ch.Error, match="snapshot of"):
                counts.snapshot("/s", **bad) if bad != {"offset": 1} else counts.snapshot("/s", 1, 4096)
        counts.snapshot("/s")
        with pytest.raises(ch.ExistsError):
            counts.snapshot("/s")
    with pytest.raises(ch.PermissionDeniedError, match="snapshot"):
        ch.open("/s", "r+")

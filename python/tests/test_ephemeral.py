"""Objects that go with their last user, and names that nobody has to think of."""

import gc
import multiprocessing
import secrets
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import commonhold as ch
import numpy as np
import pytest
from conftest import wait_for


def unnamed() -> list[str]:
    return [entry.name for entry in ch.ls("/") if entry.name and entry.name.startswith("/unnamed-")]


def total(array):
    return float(array.sum())


def test_an_array_without_a_name_of_ours_goes_with_the_last_that_shows_it():
    array = ch.zeros(None, (3, 4), "f8")
    name = ch.name_of(array)
    assert name in unnamed() and ch.stat(name).ephemeral_ms == 0
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        array[:] = 2
        assert pool.submit(total, array).result() == 24
    view = array[1:, :2].T
    del array
    gc.collect()
    assert ch.exists(name) and ch.array(name)[1, 1] == 2, "a view shows it"
    del view
    gc.collect()
    wait_for(lambda: not ch.exists(name))


def test_content_and_bytes_without_a_name():
    made = ch.from_array(None, np.arange(5))
    assert made.tolist() == [0, 1, 2, 3, 4]
    with ch.create(None, 4096) as opened:
        assert opened.name.startswith("/unnamed-") and ch.exists(opened.name)
        kept = ch.create(None, 4096, ephemeral=False)
    wait_for(lambda: not ch.exists(opened.name))
    kept.close()
    assert ch.exists(kept.name)
    ch.remove(kept.name)
    with pytest.raises(TypeError, match="create=True"):
        ch.array(None, 4)
    before = unnamed()
    with pytest.raises(TypeError):
        ch.from_array(None, [object()])
    assert unnamed() == before


def test_a_name_that_is_taken_is_not_given_again(monkeypatch):
    words = iter(["aa" * 8, "aa" * 8, "aa" * 8, "bb" * 8])
    monkeypatch.setattr(secrets, "token_hex", lambda _: next(words))
    first, second = ch.zeros(None, 1), ch.zeros(None, 1)
    assert (ch.name_of(first)[-2:], ch.name_of(second)[-2:]) == ("aa", "bb")


KILLED = """
import os, signal, sys
import commonhold as ch
array = ch.zeros(sys.argv[1], 4, ephemeral=float(sys.argv[2]))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("linger", [0, 1.5])
def test_it_goes_with_a_killed_process_and_lingers_if_told_to(name, linger):
    child = subprocess.Popen([sys.executable, "-c", KILLED, name, str(linger)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\n" and ch.exists(name)
    child.kill()
    child.wait()
    began = time.monotonic()
    if linger:
        time.sleep(0.5)
        ch.array(name)[0] = 7
        gc.collect()
        assert ch.exists(name)
    wait_for(lambda: not ch.exists(name))
    assert time.monotonic() - began >= (1.9 if linger else 0)


def test_times_that_are_none_are_refused(name):
    for bad in (-1, float("nan"), float("inf"), 1e9):
        with pytest.raises(ch.InvalidError, match="seconds"):
            ch.zeros(name, 4, ephemeral=bad)
    assert not ch.exists(name)

"""The applications in NumPy: in one process, in several, on plain memory and in an object; and where something is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import commonhold as ch
import numpy as np
import pytest

APPLICATIONS = Path(__file__).resolve().parents[2] / "bench" / "applications"
SIZES = {"matrix": ["--size", "150"], "mp3d": ["--size", "1500", "--steps", "12"]}


def start(application: str, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(APPLICATIONS / f"{application}.py"), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str]) -> list[dict[str, object]]:
    said, wrong = process.communicate(timeout=120)
    assert process.returncode == 0, wrong
    return sorted((json.loads(line) for line in said.splitlines()), key=lambda line: line["activity"])


@pytest.mark.parametrize("application", SIZES)
@pytest.mark.parametrize("activities", [1, 2, 3])
def test_on_plain_memory(application, activities):
    lines = end(start(application, *SIZES[application], "--activities", str(activities)))
    assert [line["activity"] for line in lines] == list(range(activities))
    assert all(line["right"] for line in lines)


@pytest.mark.parametrize("application", SIZES)
@pytest.mark.parametrize("sync", ["memory", "named"])
def test_in_an_object(application, sync, base):
    words = [*SIZES[application], "--memory", f"{base}-memory", "--sync", sync, "--activities", "2"]
    lines = end(start(application, *words))
    assert [line["right"] for line in lines] == [True, True]
    # Each started alone, in any order: the second waits for the first. Names are gone each time.
    second = start(application, *words, "--index", "1")
    lines = [*end(start(application, *words, "--index", "0")), *end(second)]
    assert [line["right"] for line in lines] == [True, True]
    with pytest.raises(ch.NotFoundError):
        ch.open(f"{base}-memory")


def test_a_wrong_product_is_found(base):
    name = f"{base}-memory"
    words = [*SIZES["matrix"], "--memory", name, "--activities", "2", "--steps", "1"]
    first = start("matrix", *words, "--index", "0")
    # This test is the second activity. It comes to the barriers, and computes nothing.
    shared: list[np.ndarray] = []
    while not shared:
        try:
            shared.append(ch.array(name))
        except ch.NotFoundError:
            assert first.poll() is None, first.communicate()
    words_of = shared[0][: 3 * 4096].view("u4").reshape(3, 1024)[:, 0]
    for round in (1, 2, 3):
        while words_of[1] < round:
            assert first.poll() is None, first.communicate()
        words_of[2] = round
    said, _ = first.communicate(timeout=60)
    assert first.returncode == 1 and json.loads(said)["right"] is False, said


def test_who_waits_for_ever_ends(base):
    process = start("mp3d", *SIZES["mp3d"], "--memory", f"{base}-memory", "--activities", "2", "--index", "0", "--deadline", "1")
    _, wrong = process.communicate(timeout=60)
    assert process.returncode == 1 and "barrier 1: not all came within 1 s" in wrong, wrong


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--activities", "2", "--index", "2"], "none is number 2"),
        (["--activities", "0"], "none is number 0"),
        (["--sync", "named"], "--memory NAME"),
        (["--activities", "2", "--index", "1"], "--memory NAME"),
    ],
)
def test_arguments_that_cannot_be_are_refused(words, said):
    process = start("matrix", *words)
    _, wrong = process.communicate(timeout=60)
    assert process.returncode == 2 and said in wrong, wrong

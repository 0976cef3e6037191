"""The examples run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import commonhold as ch
import numpy as np

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(*words: str) -> str:
    done = subprocess.run([sys.executable, str(EXAMPLES / words[0]), *words[1:]], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_control_loop_is_watched(name):
    with ch.create(name, 48, translation="wired") as made:
        state = made.array("f8", 6)
        state[:] = np.array([0, 0, 1.0, -0.5, 0, 12.0])
        state[:2].view("u8")[:] = 4, 1700
        lines = run("plot_state.py", name, "3").splitlines()
    assert len(lines) == 3
    assert lines[0].split()[0] == "1700" and lines[0].index("*") < lines[0].index("|")
    assert lines[0].endswith("12 us late")


def test_a_camera_gives_frames_away():
    assert run("camera.py", "40").startswith("40 frames, ")

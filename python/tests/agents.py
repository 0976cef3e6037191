"""Other processes that do what a test tells them, one thing after another."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from pathlib import Path

import commonhold as ch
from conftest import DEADLINE_S, wait_for

TURN = "turn = ch.Mutex(base + '-turn')"
BARRIER = "start = ch.Barrier(base + '-start', 3)"

# Does what each line of its input says, and says what came of it.
AGENT = """
import os, sys
import commonhold as ch
base = sys.argv[1]
while line := sys.stdin.readline():
    try:
        try:
            code = compile(line, "asked", "eval")
        except SyntaxError:
            code = compile(line, "asked", "exec")
        print(repr(eval(code)), flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    except ch.Error as error:
        print(error.kind, flush=True)
"""


class Agent:
    """Another process."""

    def __init__(self, base: str) -> None:
        command = [sys.executable, "-c", AGENT, base]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        # Whoever reads what it says reads its end then.
        self.late = threading.Timer(DEADLINE_S, self.process.kill)
        self.late.daemon = True
        self.late.start()

    def tell(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        return self.process.stdout.readline().rstrip("\n")

    def ask(self, line: str) -> str:
        self.tell(line)
        return self.hear()

    def begin(self, line: str) -> None:
        """Tells it to do what will wait, and returns when it does."""
        self.tell(line)
        wait_for(self.waits)

    def waits(self) -> bool:
        """Whether its main thread sleeps, and not because it reads or writes (system calls 0, 1, 63, 64)."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/syscall")
        return path.read_text().split()[0] not in ("running", "0", "1", "63", "64")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self.late.cancel()
        self.kill()
        # What it was not told any more is in the way of closing its input, if it ended before.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()


def wait_in(base, agents) -> None:
    """Has others wait in the barrier of a test; returns when they are all there."""
    before = arrived(base)
    [agent.begin("start.wait()") for agent in agents]
    wait_for(lambda: arrived(base) == before + len(agents))


def arrived(base) -> int:
    """How many wait there: bits 32 to 55 of its word."""
    with ch.open(f"{base}-start") as opened:
        return int.from_bytes(opened.read(0, 8), sys.byteorder) >> 32 & 0xFFFFFF

"""A host of the tests' own, in a directory of its own; names that no other test uses."""

import faulthandler
import gc
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import commonhold as ch
import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60
# No test may run for so long: the program says where its threads are, and ends.
LIMIT_S = 20 * 60

# Whoever runs the tests in the background may ignore it, and programs that they start would then, too.
signal.signal(signal.SIGINT, signal.default_int_handler)


def find_program() -> Path:
    """The program `commonhold`: COMMONHOLD_PROGRAM, else the newest that was built here, else the one in PATH."""
    named = os.environ.get("COMMONHOLD_PROGRAM")
    built = [CHECKOUT / "target" / kind / "commonhold" for kind in ("release", "debug")]
    built = sorted((path for path in built if path.is_file()), key=lambda path: -path.stat().st_mtime)
    found = named or (built[0] if built else shutil.which("commonhold"))
    if not found:
        raise pytest.UsageError("there is no program commonhold: build it, or name it in COMMONHOLD_PROGRAM")
    return Path(found)


@pytest.fixture(autouse=True)
def limit_of_time() -> Iterator[None]:
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


class PrivateHost:
    """A running host, and the commands to start, ask and stop it."""

    def __init__(self, program: Path, more: "list[str] | None" = None) -> None:
        self.program = program
        self.more = more or []
        # On a real disk, and open to other users: some tests become one.
        self.directory = Path(tempfile.mkdtemp(prefix="commonhold-python-"))
        self.directory.chmod(0o755)
        self.state = self.directory / "state"
        self.start()

    def run(self, *words: str) -> None:
        environment = os.environ | {"COMMONHOLD_HOST": str(self.state)}
        command = [self.program, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=environment)
        assert done.returncode == 0, f"commonhold {' '.join(words)}: {done.stderr}"

    def start(self) -> None:
        self.run("host", "start", "--quiet", "--budget", "256MiB", "--state", str(self.state), *self.more)

    def stop(self) -> None:
        self.run("host", "stop", "--force")
        shutil.rmtree(self.directory, ignore_errors=True)


@pytest.fixture(scope="session")
def program() -> Path:
    return find_program()


@pytest.fixture(scope="session", autouse=True)
def host(program: Path) -> Iterator[PrivateHost]:
    """The host of all tests that do not harm it."""
    host = PrivateHost(program)
    os.environ["COMMONHOLD_HOST"] = str(host.state)
    yield host
    host.stop()


@pytest.fixture
def own_host(program: Path) -> Iterator[PrivateHost]:
    """A host that a test may harm."""
    host = PrivateHost(program)
    yield host
    # What unmaps would wait for a host.
    gc.collect()
    host.stop()


@pytest.fixture(autouse=True)
def no_leftovers() -> Iterator[None]:
    """Arrays in the traceback of an expected exception go with their test."""
    yield
    gc.collect()


_numbers = itertools.count()


@pytest.fixture
def name() -> Iterator[str]:
    """The name of an object, removed afterwards."""
    name = f"/test/{os.getpid()}-{next(_numbers)}"
    yield name
    try:
        ch.remove(name)
    except ch.NotFoundError:
        pass


@pytest.fixture
def python() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs a program in an interpreter of its own."""

    def run(code: str, *words: str, expect: int = 0) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-X", "faulthandler", "-c", code, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
        assert done.returncode == expect, f"exit code {done.returncode}: {done.stdout}{done.stderr}"
        return done

    return run


@pytest.fixture
def base(name: str) -> Iterator[str]:
    """What the names of a test begin with that makes several objects."""
    yield name
    directory, start = name.rsplit("/", 1)
    for entry in ch.ls(directory):
        if entry.name.startswith(f"{directory}/{start}-"):
            ch.remove(entry.name)


@pytest.fixture
def agents(base: str) -> Iterator[Callable[..., Any]]:
    """Starts other processes (`agents.py`), which do some lines first; and ends them."""
    from agents import Agent  # which needs this file

    started = []

    def start(*lines: str) -> Agent:
        agent = Agent(base)
        started.append(agent)
        for line in lines:
            assert agent.ask(line) == "None", line
        return agent

    yield start
    for agent in started:
        agent.end()


def mapped_ranges(name: str) -> int:
    """How many mappings of an object there are, in all processes."""
    entry = ch.stat(name)
    assert isinstance(entry, ch.ObjectStat)
    return entry.mappings


def wait_for(what: Callable[[], bool]) -> None:
    """Waits until it is so; fails if it never is."""
    end = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.005)

"""Ctrl-C while a program waits for its host, or for a page."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import commonhold as ch
import pytest
from conftest import DEADLINE_S, wait_for

# Waits for a word, makes a call, and says how that ended. It does not end in order: that would wait for the host, too.
CALLER = """
import os, sys
import commonhold as ch
host = ch.connect(sys.argv[1])
o = host.open("/a", "r+")
a = o.array("u1")
m = o.map()
print("ready", flush=True)
sys.stdin.readline()
try:
    {call}
    print("returned", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.stdin.readline()
    assert host.stat("/a").name == "/a"
    print("goes on", flush=True)
os._exit(0)
"""

TOUCHER = """
import sys
import commonhold as ch
a = ch.connect(sys.argv[1]).open("/a").array("u1")
print("ready", flush=True)
sys.stdin.readline()
a[0]
"""

CALLS = [
    "host.status()",
    "host.open('/a')",
    "host.create('/b', 4096)",
    "o.map()",
    "ch.sync(a)",
    "o.lock()",
    "o.read()",
    "o.write(b'x' * 5)",
    "o.resize(8 * 4096)",
    "m.close()",
    "host.ls('/')",
]


def start(code: str, state: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", code, str(state)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    # Whoever reads what it says reads its end then.
    late = threading.Timer(DEADLINE_S, child.kill)
    late.daemon = True
    late.start()
    assert child.stdout.readline() == "ready\n"
    return child


def go_on(child: "subprocess.Popen[str]") -> None:
    child.stdin.write("\n")
    child.stdin.flush()


def waits(child: "subprocess.Popen[str]") -> bool:
    """Whether the main thread sleeps, and not because it reads its input (system call 0 or 63) or says something."""
    call = Path(f"/proc/{child.pid}/task/{child.pid}/syscall").read_text().split()[0]
    return call not in ("running", "0", "1", "63", "64")


def has_heard(child: "subprocess.Popen[str]") -> bool:
    """Whether no signal is on its way to it."""
    status = Path(f"/proc/{child.pid}/status").read_text()
    pending = [line.split()[1] for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd"))]
    return not any(int(word, 16) for word in pending)


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_ends_a_call_that_waits_for_a_stopped_host(own_host, call):
    host = ch.connect(own_host.state)
    host.create("/a", 4 * 4096, controlled=True)
    child = start(CALLER.format(call=call), own_host.state)
    process = host.status().host_pid
    os.kill(process, signal.SIGSTOP)
    try:
        go_on(child)
        wait_for(lambda: waits(child))
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n", "the host is stopped all the while"
    finally:
        os.kill(process, signal.SIGCONT)
    go_on(child)
    assert child.stdout.readline() == "goes on\n"
    assert child.wait(DEADLINE_S) == 0


def test_a_second_ctrl_c_ends_a_program_that_waits_for_a_page(own_host):
    host = ch.connect(own_host.state)
    asked, over = threading.Event(), threading.Event()

    def page_in(name: str, offset: int, length: int) -> bytes:
        asked.set()
        over.wait(DEADLINE_S)
        return bytes(length)

    serving = threading.Thread(target=host.serve_pager, args=("/slow", page_in), daemon=True)
    serving.start()
    host.create("/a", 4096, pager="/slow")
    child = start(TOUCHER, own_host.state)
    try:
        go_on(child)
        assert asked.wait(DEADLINE_S)
        child.send_signal(signal.SIGINT)
        wait_for(lambda: has_heard(child))
        assert child.poll() is None, "no instruction has ended"
        child.send_signal(signal.SIGINT)
        assert child.wait(DEADLINE_S) == -signal.SIGINT
    finally:
        over.set()
        child.kill()

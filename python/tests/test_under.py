"""Under programs that start and end processes in their own way: gunicorn, pytest-xdist, Jupyter. What is not installed is left
out."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time

import commonhold as ch
import pytest
from conftest import DEADLINE_S, wait_for

# One array of the parent, made before it forks, and one that each worker opens; how often anybody was asked.
APPLICATION = """
import os
import commonhold as ch

base = os.environ["BASE"]
inherited = ch.array(base + "-inherited", 8, "i8", create=True)
asked = ch.Counter(base + "-asked")

def application(environ, start_response):
    with ch.Mutex(base + "-mutex"):
        inherited[0] += 1
        ch.array(base + "-own", 8, "i8", create=True)[0] += 1
    asked.add(1)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]
"""

ONE_OF_MANY = """
import commonhold as ch
import pytest

@pytest.mark.parametrize("number", range(20))
def test_one(number):
    with ch.Mutex({base!r} + "-mutex"):
        ch.array({base!r} + "-sum", 2, "i8", create=True)[:] += (1, number)
"""


class _Unix(http.client.HTTPConnection):
    """HTTP over a socket in the file system."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=DEADLINE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _ask(path: str) -> int:
    connection = _Unix(path)
    try:
        connection.request("GET", "/")
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        return int(answer.read())
    finally:
        connection.close()


def _listens(path: str) -> bool:
    """Whether it can be connected to: its socket is there a little earlier."""
    with socket.socket(socket.AF_UNIX) as tried:
        return tried.connect_ex(path) == 0


@pytest.mark.parametrize("how", [["--preload"], [], ["--preload", "--threads", "4"]])
def test_gunicorn(base, tmp_path, how):
    pytest.importorskip("gunicorn")
    (tmp_path / "shared_application.py").write_text(APPLICATION)
    path = str(tmp_path / "socket")
    command = [sys.executable, "-m", "gunicorn", "--bind", f"unix:{path}", "--workers", "2", *how]
    environment = os.environ | {"BASE": base, "PYTHONPATH": str(tmp_path)}
    with open(tmp_path / "log", "wb") as log:
        server = subprocess.Popen(
            [*command, "shared_application:application"], env=environment, cwd=tmp_path, stderr=log, stdout=log
        )
    try:
        wait_for(lambda: _listens(path) or server.poll() is not None)
        assert server.poll() is None, (tmp_path / "log").read_text()
        workers, count = set(), 0
        end = time.monotonic() + DEADLINE_S
        while len(workers) < 2 or count < 20:
            assert time.monotonic() < end, f"only {workers} ever answered"
            workers.add(_ask(path))
            count += 1
        # A worker that is killed is replaced, and what it did stays.
        os.kill(workers.pop(), signal.SIGKILL)
        wait_for(lambda: _ask(path) not in workers)
        assert ch.array(base + "-inherited")[0] == ch.array(base + "-own")[0] == ch.Counter(base + "-asked").value > 20
    finally:
        server.terminate()
        assert server.wait(DEADLINE_S) == 0, (tmp_path / "log").read_text()


def test_xdist(base, tmp_path):
    pytest.importorskip("xdist")
    (tmp_path / "test_many.py").write_text(ONE_OF_MANY.format(base=base))
    command = [sys.executable, "-m", "pytest", "-q", "-n", "3", "-p", "no:cacheprovider", "test_many.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ch.array(base + "-sum").tolist() == [20, 190]


def test_jupyter(base):
    pytest.importorskip("ipykernel")
    manager = pytest.importorskip("jupyter_client").manager
    kernels = [manager.start_new_kernel(kernel_name="python3") for _ in range(2)]
    try:
        first, second = (client for _, client in kernels)

        def run(client, code):
            answer = client.execute_interactive(f"import commonhold as ch; base = {base!r}; {code}", timeout=DEADLINE_S)
            return answer["content"]["status"]

        assert run(first, "a = ch.zeros(base + '-a', 5); a[2] = 4; a") == "ok"
        assert run(second, "b = ch.array(base + '-a'); assert b[2] == 4; b[3] = 7") == "ok"
        assert run(second, "m = ch.Mutex(base + '-m'); m.acquire()") == "ok"
        # The button that interrupts a cell ends a call that waits, and the kernel goes on.
        # (After an error a kernel gives up what comes in the next moment, unless it is told to go on.)
        waits = "ch.Counter(base + '-begun').add(1); ch.Mutex(base + '-m').acquire()"
        asked = first.execute(waits, stop_on_error=False)
        wait_for(lambda: ch.exists(base + "-begun") and ch.Counter(base + "-begun").value == 1)
        time.sleep(0.2)
        kernels[0][0].interrupt_kernel()
        answer = first.get_shell_msg(timeout=DEADLINE_S)
        while answer["parent_header"].get("msg_id") != asked:
            answer = first.get_shell_msg(timeout=DEADLINE_S)
        assert answer["content"]["ename"] == "KeyboardInterrupt", answer["content"]
        assert run(first, "assert a[3] == 7") == "ok"
    finally:
        for kernel, client in kernels:
            client.stop_channels()
            kernel.shutdown_kernel(now=True)

"""The examples of two hosts run on two hosts."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import commonhold as ch
import pytest
from conftest import DEADLINE_S, PrivateHost, wait_for

EXAMPLES = Path(__file__).parent.parent / "examples"
sys.path.insert(0, str(EXAMPLES))


def free_address() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


@pytest.fixture(scope="module")
def hosts(program: Path) -> Iterator[list[PrivateHost]]:
    """Two hosts of one cluster."""
    started = [free_address(), free_address()]
    words = ["--plain", "--name"]
    hosts = [PrivateHost(program, [*words, "first", "--listen", started[0]])]
    hosts.append(PrivateHost(program, [*words, "second", "--listen", started[1], "--join", started[0]]))

    def belongs() -> bool:
        try:
            ch.connect(hosts[1].state).create("/begun", 4096, coherence="strict").close()
        except ch.Error:
            return False
        return True

    wait_for(belongs)
    yield hosts
    for host in reversed(hosts):
        host.stop()


def start(host: PrivateHost, example: str, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(EXAMPLES / f"{example}.py"), *words]
    environment = os.environ | {"COMMONHOLD_HOST": str(host.state)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str]) -> str:
    said, wrong = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, wrong
    return said


def test_two_hosts_find_the_means_that_threads_find(hosts):
    alone = end(start(hosts[0], "kmeans", "alone"))
    assert len(set(alone.splitlines())) == 5
    for first, second in (hosts, reversed(hosts)):
        other = start(second, "kmeans", "1")
        assert [end(start(first, "kmeans", "0")), end(other)] == [alone, alone]


def test_jobs_are_done_whoever_is_killed(hosts):
    import jobs

    end(start(hosts[0], "jobs", "put", "3000"))
    killed, *workers = [start(host, "jobs", "work") for host in (*hosts, *hosts)]
    begun = ch.connect(hosts[0].state).array("/jobs/next")
    wait_for(lambda: begun[0] > 0)
    killed.kill()
    killed.communicate()
    assert sum(int(end(worker).split()[0]) for worker in workers) > 0
    expected = [jobs.steps(10**15 + number) for number in range(1, 3001)]
    said = end(start(hosts[1], "jobs", "results"))
    assert said == f"3000 jobs, {max(expected)} steps at most, {sum(expected)} in all\n"


def test_two_hosts_fill_one_table(hosts):
    pytest.importorskip("pyarrow", reason="left out: pyarrow is not installed")
    both = [start(host, "arrow_table", str(me)) for me, host in enumerate(hosts)]
    first, second = map(end, both)
    assert first == second and re.match(r"200000 rows, sensors \[0, 1, 2, 3, 4, 5, 6\]\n", first)
    means = [float(mean) for mean in first.splitlines()[1].split()]
    expected = [[time % 1000 / 8 for time in range(200_000) if time % 7 == sensor] for sensor in range(7)]
    assert means == pytest.approx([sum(of) / len(of) for of in expected], abs=0.001)


def test_columns_are_the_memory_of_the_heap(own_host):
    pytest.importorskip("pyarrow", reason="left out: pyarrow is not installed")
    import arrow_table

    heap = ch.Heap("/arrow", size=64 << 20, host=ch.connect(own_host.state))
    for me in range(arrow_table.PARTS):
        arrow_table.fill(heap, me)
    reading = arrow_table.table(heap)["reading"].chunk(1)
    block = heap.view(heap.load(heap.root("reading/1")), arrow_table.ROWS)
    assert reading.buffers()[1].address == block.__array_interface__["data"][0]
    block[5] = 123.5
    assert reading[5].as_py() == 123.5

"""Waiting for changes, between processes: by calls, by asyncio, and with Ctrl-C."""

from __future__ import annotations

import asyncio
import select
import signal
import threading
import time

import commonhold as ch
import pytest
from agents import Agent
from conftest import DEADLINE_S


def test_another_process_wakes(base: str) -> None:
    table = ch.array(f"{base}-table", 1000, "f8", create=True)
    other = Agent(base)
    other.ask("table = ch.array(base + '-table')")
    with ch.watch(table[:8]) as news, ch.watch(table[8:16]) as far:
        assert not news.wait(0) and not select.select([news], [], [], 0)[0]
        for round_ in range(1, 20):
            other.tell(f"table.__setitem__(0, {round_}) or ch.notify(table[7:8])")
            while table[0] != round_:
                assert news.wait(DEADLINE_S)
            other.hear()
        while news.wait(0):
            pass
        assert not far.wait(0)
        other.ask("ch.notify(table)")
        assert select.select([news, far], [], [], DEADLINE_S)[0] == [news, far]
        assert news.wait() and far.wait(0.001) and not far.wait(0.001)
    assert news.closed and far.closed
    with pytest.raises(ch.InvalidError, match="closed"):
        news.wait(0)
    other.end()


def test_objects_and_mappings(base: str) -> None:
    with ch.create(f"{base}-o", 8200) as o, o.map() as m:
        whole, part, end = ch.watch(o), m.watch(96, 8), m.watch(8192)
        assert whole.fileno() != part.fileno()
        m.notify(103, 1)
        assert whole.wait(0) and part.wait(0) and not end.wait(0)
        m.notify(8199, 1)
        ch.notify(o)
        assert [watch.wait(0) for watch in (whole, part, end)] == [True] * 3
        begun = time.monotonic()
        assert not m.wait(0, 8, 0.05) and not ch.wait(m, 0.05) and not m.wait(timeout=0)
        assert time.monotonic() - begun >= 0.1
        waiting = threading.Thread(target=m.wait)
        waiting.start()
        while waiting.is_alive():
            m.notify()
            waiting.join(0.01)
        for offset, length in [(0, 0), (8200, 1), (0, 3 * 4096 + 1)]:
            with pytest.raises(ch.InvalidError):
                m.watch(offset, length)
            with pytest.raises(ch.InvalidError):
                m.notify(offset, length)
        for bad in (-1.0, float("nan")):
            with pytest.raises(ch.InvalidError):
                m.wait(timeout=bad)
    with ch.open(f"{base}-o") as reads, pytest.raises(ch.PermissionDeniedError, match="open it for writing"):
        ch.notify(reads)


def test_asyncio_waits_by_the_descriptor(base: str) -> None:
    table = ch.array(f"{base}-table", 8, "u8", create=True)
    other = Agent(base)
    other.ask("table = ch.array(base + '-table')")

    async def sees(value: int) -> None:
        with ch.watch(table) as news:
            loop, woken = asyncio.get_running_loop(), asyncio.Event()
            loop.add_reader(news, woken.set)
            other.tell(f"table.__setitem__(0, {value}) or ch.notify(table)")
            while table[0] != value:
                await asyncio.wait_for(woken.wait(), DEADLINE_S)
                woken.clear()
                assert news.wait(0)
            loop.remove_reader(news)
            other.hear()

    for value in range(1, 6):
        asyncio.run(sees(value))
    other.end()


def test_ctrl_c_ends_a_wait(base: str) -> None:
    ch.array(f"{base}-table", 8, "u8", create=True)
    other = Agent(base)
    other.ask("watch = ch.watch(ch.array(base + '-table'))")
    for call in ("watch.wait()", f"watch.wait({DEADLINE_S})", "ch.wait(ch.array(base + '-table'))"):
        other.begin(call)
        other.process.send_signal(signal.SIGINT)
        assert other.hear() == "interrupted"
    assert other.ask("watch.wait(0)") == "False"
    ch.notify(ch.open(f"{base}-table", "r+"))
    assert other.ask("watch.wait(0)") == "True"
    other.end()

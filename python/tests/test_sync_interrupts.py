"""Signals in waits for locks by name: nothing is left of a wait that one of them ended."""

from __future__ import annotations

import random
import signal

import commonhold as ch
import pytest
from agents import BARRIER, TURN, wait_in
from conftest import DEADLINE_S


def test_an_interrupt_leaves_no_lock_behind(base):
    turn, lock = ch.Mutex(f"{base}-turn"), ch.RwLock(f"{base}-lock")
    places = ch.Semaphore(f"{base}-places")
    ready = ch.Condition(f"{base}-ready", turn)

    class Interrupted(Exception):
        pass

    def interrupt(number, frame):
        raise Interrupted

    def locks_until_then():
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 2e-3))
        while True:
            with turn, places:
                pass
            with lock.read():
                pass
            with lock.write():
                pass
            with ready:
                ready.wait(1e-4)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(500):
            with pytest.raises(Interrupted):
                locks_until_then()
            # Nobody has them: this thread would be told.
            assert turn.acquire(0) and places.value == 1
            turn.release()
            with lock.write(timeout=0):
                pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


INTERRUPTED = {
    "turn.acquire()": "turn.acquire(60) and turn.release()",
    "with turn: pass": "turn.acquire(60) and turn.release()",
    "with held: held.wait(held_for)": "mine.acquire(0) and mine.release()",
    "with held: held.wait_for(lambda: 0)": "mine.acquire(0) and mine.release()",
    "held.acquire() and held.wait()": "mine.release()",
    "places.acquire()": "places.value",
    "lock.read().__enter__()": "None",
    "lock.write().__enter__()": "None",
    "counter.wait_while(0)": "counter.value",
}


@pytest.mark.parametrize("call", INTERRUPTED)
def test_ctrl_c_ends_a_wait(base, agents, call):
    turn, places = ch.Mutex(f"{base}-turn"), ch.Semaphore(f"{base}-places", 0)
    lock, counter = ch.RwLock(f"{base}-lock"), ch.Counter(f"{base}-next")
    other = agents(
        TURN,
        "mine = ch.Mutex(base + '-mine')",
        "held, held_for = ch.Condition(base + '-held', mine), 10**6",
        "places = ch.Semaphore(base + '-places')",
        "lock, counter = ch.RwLock(base + '-lock'), ch.Counter(base + '-next')",
    )
    with turn, lock.write():
        other.begin(call)
        other.process.send_signal(signal.SIGINT)
        assert other.hear() == "interrupted"
    # Nothing is left of it: it does not have what it waited for, and gets it now.
    assert other.ask(INTERRUPTED[call]) in ("None", "0")
    with turn, lock.write():
        assert places.value == 0 and counter.value == 0
    assert ch.Mutex(f"{base}-mine", create=False).acquire(0)


def test_ctrl_c_in_a_barrier_gives_the_round_up(base, agents):
    start = ch.Barrier(f"{base}-start", 3)
    others = [agents(BARRIER), agents(BARRIER)]
    wait_in(base, others)
    others[0].process.send_signal(signal.SIGINT)
    assert [other.hear() for other in others] == ["interrupted", "broken"]
    # It is not counted any more.
    wait_in(base, others[1:])
    with pytest.raises(ch.TimedOutError):
        start.wait(0.06)
    wait_in(base, others[:1])
    assert start.wait(DEADLINE_S) is True
    assert [other.hear() for other in others] == ["False", "False"]

"""Locks by name, between processes, some of which are killed or forked."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from concurrent.futures import ProcessPoolExecutor

import commonhold as ch
import pytest
from agents import BARRIER, TURN, arrived, wait_in
from conftest import DEADLINE_S, wait_for

METHODS = ["fork", "spawn"]


def add_under(turn, shown, times):
    counts = shown.array()
    for _ in range(times):
        with turn:
            before = int(counts[0])
            counts[0] = before + 1


@pytest.mark.parametrize("hosts", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_processes_count_under_a_mutex(base, method, hosts):
    turn = ch.Mutex(f"{base}-turn", hosts=hosts)
    counts = ch.array(f"{base}-counts", 1, "u8", create=True)
    context = multiprocessing.get_context(method)
    arguments = (turn, ch.handle(counts), 2000)
    processes = [context.Process(target=add_under, args=arguments) for _ in range(2)]
    [process.start() for process in processes]
    add_under(*arguments)
    [process.join(DEADLINE_S) for process in processes]
    assert [process.exitcode for process in processes] == [0, 0]
    assert counts[0] == 6000


def test_a_mutex_is_of_one_thread(base, agents):
    turn = ch.Mutex(f"{base}-turn")
    other = agents(TURN)
    assert turn.acquire() is True
    assert other.ask("turn.acquire(0)") == "False"
    assert other.ask("turn.acquire(timeout=0.07)") == "False"
    assert other.ask("turn.acquire_and_mend(0.01)") == "timed_out"
    assert other.ask("turn.release()") == "not_owner"
    with pytest.raises(ch.DeadlockError, match="has it already"):
        turn.acquire(0)
    heard = []
    thread = threading.Thread(target=lambda: heard.append(turn.acquire(timeout=0.01)))
    thread.start()
    thread.join()
    assert heard == [False]
    other.begin("turn.acquire()")
    turn.release()
    assert other.hear() == "True"
    with pytest.raises(ch.NotOwnerError, match=f"mutex {base}-turn: .*{other.process.pid} has it"):
        turn.release()
    assert other.ask("turn.release()") == "None"
    with turn as same:
        assert same is turn and not turn.closed
    with pytest.raises(ZeroDivisionError), turn:
        raise ZeroDivisionError
    assert turn.acquire_and_mend(0) is False
    turn.release()
    for wrong in (-1, float("nan")):
        with pytest.raises(ch.InvalidError, match="no time"):
            turn.acquire(wrong)


def test_a_killed_owner(base, agents):
    turn = ch.Mutex(f"{base}-turn")
    other = agents(TURN)
    assert other.ask("turn.acquire()") == "True"
    other.kill()
    for timeout in (None, DEADLINE_S):
        with pytest.raises(ch.OwnerDiedError, match="mend") as raised:
            turn.acquire(timeout)
        assert isinstance(raised.value, RuntimeError) and raised.value.kind == "owner_died"
    with pytest.raises(ch.OwnerDiedError), turn:
        pytest.fail("it is not to be had")
    assert turn.acquire_and_mend() is True
    turn.release()
    with turn:
        pass
    assert turn.acquire_and_mend() is False
    turn.release()


def test_an_object_of_many(base, agents):
    places = ch.Mutex(f"{base}-turn", count=5)
    other = agents(TURN)
    assert len(places) == len(list(places)) == 5 and other.ask("len(turn)") == "5"
    third = places[3]
    with third:
        assert [places[index].acquire(0) for index in (0, 1, 2, -1)] == [True] * 4
        assert other.ask("[turn[i].acquire(0) for i in range(5)]") == "[False, False, False, False, False]"
        assert repr(third) == f"<commonhold.Mutex {base}-turn[3]>"
    assert other.ask("turn[3].acquire(0)") == "True"
    assert places[-2].acquire(0) is False
    for wrong in (5, -6):
        with pytest.raises(IndexError, match="holds 5"):
            places[wrong]
    [places[index].release() for index in (0, 1, 2, -1)]
    places.close()
    assert places.closed and not third.closed
    assert other.ask("turn[3].release()") == "None"
    assert third.acquire(0)
    third.release()


@pytest.mark.parametrize("hosts", [False, True])
def test_conditions_between_processes(base, agents, hosts):
    turn = ch.Mutex(f"{base}-turn")
    ready = ch.Condition(f"{base}-ready", turn, hosts=hosts)
    made = ch.Counter(f"{base}-made", hosts=hosts)
    other = agents(TURN, "ready = ch.Condition(base + '-ready', turn)", "made = ch.Counter(base + '-made')")
    with ready:
        assert ready.wait(0) is False
        assert ready.wait(0.12) is False
        assert ready.wait_for(lambda: made.value, timeout=0.06) == 0
    assert other.ask("ready.acquire()") == "True"
    other.begin("ready.wait_for(lambda: made.value, 60)")
    with ready:
        made.add(7)
        ready.notify()
    assert other.hear() == "7" and other.ask("ready.release()") == "None"
    # In a thread that hears of no signals a wait is in one piece.
    heard = []

    def waits():
        with ready:
            while made.value == 7:
                heard.append(ready.wait(DEADLINE_S))

    threads = [threading.Thread(target=waits) for _ in range(3)]
    [thread.start() for thread in threads]
    assert other.ask("with ready: made.add(1); ready.notify_all()") == "None"
    [thread.join() for thread in threads]
    assert all(heard), "no signal was lost"
    with pytest.raises(ch.NotOwnerError):
        ready.wait(0)
    assert ready.mutex is turn and ready[0].mutex is turn


@pytest.mark.parametrize("hosts", [False, True])
def test_no_signal_is_lost_between_short_waits(base, agents, hosts):
    turn = ch.Mutex(f"{base}-turn")
    ready = ch.Condition(f"{base}-ready", turn, hosts=hosts)
    other = agents(TURN, "import time", "ready = ch.Condition(base + '-ready', turn)")
    # While the other has the mutex the time of a short wait is over: who waited is not there when
    # the other signals.
    for call in ("ready.notify()", "ready.notify_all()", "ready.notify(5)", "ready.notify(10**6)"):
        with ready:
            other.tell(f"with turn: time.sleep(0.2); {call}")
            assert ready.wait(DEADLINE_S) is True
        assert other.hear() == "None"


@pytest.mark.parametrize("hosts", [False, True])
def test_semaphores_limit(base, agents, hosts):
    places = ch.Semaphore(f"{base}-places", 2, hosts=hosts)
    other = agents("places = ch.Semaphore(base + '-places')")
    with places:
        assert other.ask("places.acquire()") == "True"
        assert places.value == 0 and places.acquire(0) is False and places.acquire(0.06) is False
        other.begin("places.acquire()")
    assert other.hear() == "True"
    other.begin("places.acquire()")
    places.release(3)
    assert other.hear() == "True" and places.value == 2
    with pytest.raises(ch.InvalidError, match="2147483647"):
        places.release(2**31)
    assert ch.Semaphore(f"{base}-default").value == 1


def is_refused(holding) -> bool:
    try:
        with holding:
            return False
    except TimeoutError:
        return True


@pytest.mark.parametrize("hosts", [False, True])
def test_rwlocks(base, agents, hosts):
    lock = ch.RwLock(f"{base}-lock", hosts=hosts)
    other = agents("lock = ch.RwLock(base + '-lock')", "reading, writing = lock.read(0), lock.write(0.06)")
    with lock.read(), lock.read():
        assert other.ask("reading.__enter__()") == "None"
        assert other.ask("writing.__enter__()") == "timed_out"
        assert other.ask("reading.__exit__()") == "None"
        other.begin("lock.write().__enter__()")
        # Who waits to write goes before readers that come later, but for instants.
        assert sum(is_refused(lock.read(timeout=0)) for _ in range(20)) >= 10
    assert other.hear() == "None"
    for holding in (lock.read(0.06), lock.write(0.06), lock.write(0), lock.write_and_mend(0)):
        with pytest.raises(ch.TimedOutError), holding:
            pytest.fail("it is written")
    assert other.ask("lock.read(0).__enter__()") == "deadlock"
    other.kill()
    for holding in (lock.read(), lock.write()):
        with pytest.raises(ch.OwnerDiedError), holding:
            pytest.fail("its writer died")
    with lock.write_and_mend() as died:
        assert died is True
    with lock.write_and_mend() as died:
        assert died is False
    with lock.write() as nothing:
        assert nothing is None
    with pytest.raises(ch.NotOwnerError):
        lock.write().__exit__(None, None, None)


def test_barriers(base, agents):
    start = ch.Barrier(f"{base}-start", 3)
    others = [agents(BARRIER), agents(BARRIER)]
    assert start.parties == 3
    with pytest.raises(ch.TimedOutError, match="not all 3"):
        start.wait(0.06)
    for _ in range(5):
        wait_in(base, others)
        assert start.wait(DEADLINE_S) is True
        assert [other.hear() for other in others] == ["False", "False"]
    # A round that somebody gives up, and one in which somebody dies.
    wait_in(base, others[:1])
    start.abort()
    assert others[0].hear() == "broken"
    wait_in(base, others)
    others[0].kill()
    assert others[1].hear() == "broken"
    wait_in(base, others[1:])

    def kills():
        wait_for(lambda: arrived(base) == 2)
        others[1].kill()

    killer = threading.Thread(target=kills)
    killer.start()
    with pytest.raises(threading.BrokenBarrierError) as raised:
        start.wait(DEADLINE_S)
    assert isinstance(raised.value, ch.BrokenBarrierError) and raised.value.errno is not None
    killer.join()
    with pytest.raises(ch.MismatchError, match="waits for 3, not for 4"):
        ch.Barrier(f"{base}-start", 4)
    with pytest.raises(ch.MismatchError, match="waits for 3, not for 4"):
        ch.Barrier(f"{base}-start", 4, create=False)
    assert ch.Barrier(f"{base}-start", create=False).parties == 3
    with pytest.raises(ch.InvalidError, match="parties"):
        ch.Barrier(f"{base}-other")


def test_barriers_of_hosts(base, agents):
    start = ch.Barrier(f"{base}-start", 3, hosts=True)
    others = [agents(BARRIER), agents(BARRIER)]
    with pytest.raises(ch.TimedOutError, match="not all 3"):
        start.wait(0.06)
    for _ in range(5):
        [other.begin("start.wait()") for other in others]
        last = start.wait(DEADLINE_S)
        assert sorted([str(last), *(other.hear() for other in others)]) == ["False", "False", "True"]
    others[0].begin("start.wait()")
    heard = []
    hears = threading.Thread(target=lambda: heard.append(others[0].hear()))
    hears.start()
    while hears.is_alive():
        start.abort()
        hears.join(0.01)
    assert heard == ["broken"]


def test_a_wait_of_a_thread_in_a_barrier(base):
    start = ch.Barrier(f"{base}-start", 3)
    heard = []
    threads = [threading.Thread(target=lambda: heard.append(start.wait(DEADLINE_S))) for _ in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(heard) == [False, False, True]


def draw(counter, times):
    return [counter.add() for _ in range(times)]


@pytest.mark.parametrize("method", METHODS)
def test_tickets_are_unique(base, method):
    counter = ch.Counter(f"{base}-next")
    with ProcessPoolExecutor(4, multiprocessing.get_context(method)) as pool:
        drawn = list(pool.map(draw, [counter] * 8, [500] * 8))
    assert sorted(ticket for part in drawn for ticket in part) == list(range(4000))
    assert all(part == sorted(part) for part in drawn) and counter.value == 4000


@pytest.mark.parametrize("hosts", [False, True])
def test_counters(base, agents, hosts):
    counter = ch.Counter(f"{base}-next", hosts=hosts)
    other = agents("counter = ch.Counter(base + '-next', create=False)")
    assert counter.add(5) == 0 and other.ask("counter.value") == "5"
    assert counter.compare_exchange(4, 9) is False and counter.compare_exchange(5, 9) is True
    assert counter.wait_while(5) == 9
    for timeout in (0, 0.06):
        with pytest.raises(TimeoutError, match="its value stayed"):
            counter.wait_while(9, timeout)
    other.begin("counter.wait_while(9)")
    counter.add(2**64 - 9)
    assert other.hear() == "0"
    for wrong in (-1, 2**64):
        with pytest.raises(ch.InvalidError, match="out of range"):
            counter.add(wrong)


def in_child(run) -> int:
    """Runs in a fork child; gives what it returned."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(run())
        except BaseException:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_fork_child_goes_on(base):
    turn = ch.Mutex(f"{base}-turn")
    ready = ch.Condition(f"{base}-ready", turn)
    lock = ch.RwLock(f"{base}-lock")
    counter = ch.Counter(f"{base}-next")
    start = ch.Barrier(f"{base}-start", 1)

    def has_what_the_parent_has():
        try:
            turn.release()
        except ch.NotOwnerError:
            return 0 if turn.acquire(0.06) is False else 1
        return 2

    def uses_all():
        with ready, lock.write():
            ready.notify()
            counter.add()
            return 0 if start.wait(DEADLINE_S) and ready.wait(0.01) is False else 1

    def dies_with_it():
        turn.acquire()
        return 0

    with turn, lock.read():
        assert in_child(has_what_the_parent_has) == 0
        assert in_child(lambda: in_child(has_what_the_parent_has)) == 0
    assert in_child(uses_all) == 0 and counter.value == 1
    assert in_child(dies_with_it) == 0
    with pytest.raises(ch.OwnerDiedError):
        turn.acquire(DEADLINE_S)
    assert turn.acquire_and_mend() is True
    turn.release()


def test_they_are_pickled_by_name(base):
    turn = ch.Mutex(f"{base}-turn", count=3)
    all_of_them = [
        turn,
        turn[2],
        ch.Condition(f"{base}-ready", turn[1], count=2)[1],
        ch.RwLock(f"{base}-lock"),
        ch.Semaphore(f"{base}-places", 4),
        ch.Barrier(f"{base}-start", 2),
        ch.Counter(f"{base}-next"),
    ]
    for each in all_of_them:
        again = pickle.loads(pickle.dumps(each))
        assert type(again) is type(each) and repr(again) == repr(each) and len(again) == len(each)
    again = pickle.loads(pickle.dumps(all_of_them[2]))
    with turn[1], pytest.raises(ch.DeadlockError):
        again.acquire(0)
    pickled = pickle.dumps(turn)
    ch.rename(f"{base}-turn", f"{base}-renamed")
    assert pickle.loads(pickle.dumps(turn)).name == f"{base}-renamed"
    ch.Mutex(f"{base}-turn").close()
    with pytest.raises(ch.Error, match="replaced by another") as raised:
        pickle.loads(pickled)
    assert raised.value.kind == "lost"


def test_what_is_wrong(base):
    counter = ch.Counter(f"{base}-next")
    for create in (True, False):
        with pytest.raises(ch.MismatchError, match=f'object {base}-next is no mutex: its description is "sync:counter"'):
            ch.Mutex(f"{base}-next", create)
    ch.create(f"{base}-plain", 4096).close()
    with pytest.raises(ch.MismatchError, match="is no rwlock"):
        ch.RwLock(f"{base}-plain")
    with pytest.raises(ch.NotFoundError):
        ch.Mutex(f"{base}-none", create=False)
    with pytest.raises(ch.ExistsError):
        ch.Counter(f"{base}-next", create="new")
    with pytest.raises(ch.InvalidError, match='create="old"'):
        ch.Counter(f"{base}-next", create="old")
    for count in (0, 65537):
        with pytest.raises(ch.InvalidError, match="1 to 65536"):
            ch.Mutex(f"{base}-turn", count=count)
    with pytest.raises(ch.InvalidError, match="barrier"):
        ch.Barrier(f"{base}-start", 0)
    with pytest.raises(TypeError):
        ch.Condition(f"{base}-ready", counter)
    assert ch.stat(f"{base}-next").mode == 0o600
    ch.Mutex(f"{base}-turn", mode=0o640)
    assert ch.stat(f"{base}-turn").mode == 0o640
    counter.close()
    counter.close()
    assert counter.closed and "closed" in repr(counter)
    with pytest.raises(ch.InvalidError, match="closed by this program"):
        counter.add()


def test_another_host(own_host, base):
    host = ch.connect(own_host.state)
    here, there = ch.Counter(f"{base}-next"), ch.Counter(f"{base}-next", host=host)
    there.add(3)
    assert (here.value, there.value, pickle.loads(pickle.dumps(there)).value) == (0, 3, 3)

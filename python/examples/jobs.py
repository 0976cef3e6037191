"""A queue of jobs for the processes of all hosts. Any number of workers come, go and are killed meanwhile.

alpha$ python jobs.py put 1000      so many jobs: how many steps until 1, of 3n + 1 and n / 2?
alpha$ python jobs.py work          does jobs until all are done; as many of these as you like
beta$  python jobs.py work
alpha$ python jobs.py results       all results, and the end of the queue
"""

import sys

import commonhold as ch
import numpy as np

NAME, AT_ONCE = "/jobs", 16
JOB = np.dtype([("number", "u8"), ("steps", "u4"), ("done", "u4")])


def put(count: int) -> None:
    """The jobs are there when the word that says which is next is."""
    jobs = ch.array(f"{NAME}/list", count, JOB, create="new", coherence="strict")
    jobs["number"] = np.arange(1, count + 1) + 10**15
    ch.Mutex(f"{NAME}/turn", hosts=True)
    ch.array(f"{NAME}/next", 1, "u8", create="new", coherence="strict")


def take(jobs: np.ndarray, next: np.ndarray, turn: ch.Mutex) -> np.ndarray:
    """Numbers of jobs to do. When nobody has to begin one any more, those that others began and have not done: their
    worker may be dead. A job that is done twice has one result."""
    # Nothing is half changed by who died with the mutex: the one change is one store.
    turn.acquire_and_mend()
    first = int(next[0])
    next[0] = last = min(first + AT_ONCE, len(jobs))
    turn.release()
    return np.arange(first, last) if first < last else np.flatnonzero(jobs["done"] == 0)[:AT_ONCE]


def work() -> int:
    jobs, next, turn = ch.array(f"{NAME}/list"), ch.array(f"{NAME}/next"), ch.Mutex(f"{NAME}/turn", create=False)
    done = 0
    while len(taken := take(jobs, next, turn)):
        for index in taken:
            jobs["steps"][index] = steps(int(jobs["number"][index]))
            jobs["done"][index] = 1  # after its result, for all who see it
            done += 1
    return done


def steps(number: int) -> int:
    count = 0
    while number > 1:
        number = 3 * number + 1 if number % 2 else number // 2
        count += 1
    return count


def results() -> None:
    jobs = ch.array(f"{NAME}/list")
    assert jobs["done"].all(), f"{(jobs['done'] == 0).sum()} jobs are not done: python jobs.py work"
    print(f"{len(jobs)} jobs, {jobs['steps'].max()} steps at most, {jobs['steps'].sum()} in all")
    for name in ("list", "next", "turn"):
        ch.remove(f"{NAME}/{name}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["put", count]:
            put(int(count))
        case ["work"]:
            print(f"{work()} jobs done here")
        case ["results"]:
            results()
        case _:
            sys.exit(__doc__)

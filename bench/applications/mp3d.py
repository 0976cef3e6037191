"""Particles that fly and collide, in NumPy: as mp3d.c, but that collisions are an activity's by the cell in which they
happen, so that no locks are needed. Particles belong to activities for good; a cell's collisions change velocities of any."""

from __future__ import annotations

import numpy as np
from shared import PAGE, Activities, pages

SIDE = 16
UNIT = 512  # particles: their places and velocities take whole pages
STEP_TIME = 0.01


def collide(velocity: np.ndarray, first: np.ndarray, second: np.ndarray, random: np.random.Generator) -> None:
    """Pairs fly apart as fast as they met, in any direction."""
    half = (velocity[first] - velocity[second]) / 2
    middle = (velocity[first] + velocity[second]) / 2
    direction = random.normal(size=half.shape)
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    half = np.linalg.norm(half, axis=1, keepdims=True) * direction
    velocity[first], velocity[second] = middle + half, middle - half


def main() -> None:
    activities = Activities("mp3d.py", size=24576, steps=100)
    size, seed = activities.given.size, activities.given.seed
    part = pages(size * 24)

    def parts(memory: np.ndarray) -> list[np.ndarray]:
        floats = [memory[n * part :][: size * 24].view("f8").reshape(size, 3) for n in range(2)]
        # The cell of each particle, and how many have entered, by activity: a page each.
        entered = memory[2 * part + pages(size * 8) :].view("u8").reshape(-1, PAGE // 8)[:, 0]
        return [*floats, memory[2 * part :][: size * 8].view("u8"), entered]

    def fill(memory: np.ndarray) -> None:
        place, velocity = parts(memory)[:2]
        random = np.random.default_rng(seed)
        place[:] = random.random((size, 3))
        velocity[:] = random.random((size, 3)) + (0.5, -0.5, -0.5)

    memory = activities.begin(2 * part + pages(size * 8) + activities.count * PAGE, fill)
    place, velocity, cell, entered = parts(memory)
    own, cells = activities.share(size, UNIT), activities.share(SIDE**3)
    random = np.random.default_rng([seed, activities.me])
    before = velocity.sum(axis=0), (velocity**2).sum()
    collisions = 0
    activities.start()
    for _ in range(activities.given.steps):
        place[own] = (place[own] + velocity[own] * STEP_TIME) % 1.0 % 1.0
        at = (place[own] * SIDE).astype("u8")
        cell[own] = (at[:, 0] * SIDE + at[:, 1]) * SIDE + at[:, 2]
        activities.barrier()
        # All particles in this activity's cells, neighbours in the order of cells: two of one cell collide.
        here = np.flatnonzero((cell >= cells.start) & (cell < cells.stop))
        here = here[np.argsort(cell[here], kind="stable")]
        order = np.arange(len(here)) - np.searchsorted(cell[here], cell[here])
        first = np.flatnonzero(order[:-1] % 2 == 0) if len(here) else order
        first = first[cell[here[first]] == cell[here[first + 1]]] if len(first) else first
        collide(velocity, here[first], here[first + 1], random)
        collisions += len(first)
        entered[activities.me] += len(here)
        activities.barrier()
    activities.stop()
    near = {"rtol": 0, "atol": 1e-9 * size}
    momentum = np.allclose(velocity.sum(axis=0), before[0], **near)
    energy = np.allclose((velocity**2).sum(), before[1], **near)
    particles = bool(np.all((place >= 0) & (place < 1))) and int(entered.sum()) == size * activities.given.steps
    right = activities.me > 0 or (momentum and energy and particles)
    activities.report(right, collisions=collisions, momentum=bool(momentum), energy=bool(energy), particles=particles)


if __name__ == "__main__":
    main()

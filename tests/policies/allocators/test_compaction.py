"""Does compaction move the runs that cost least, down, and no more of them than it must?"""

from __future__ import annotations

import numpy as np

from policies.allocators.arena import Arena
from policies.allocators.compaction import MovableRuns, compact

SIZES = (10, 20, 10, 30, 10, 20)


def crowded(*released: int) -> tuple[Arena, MovableRuns]:
    """An arena of 100 slots full of runs of SIZES, of which some are released; a run has as many
    tokens as slots."""
    arena = Arena(0, 100)
    starts = [arena.take(size) for size in SIZES]
    for i in released:
        arena.give_back(starts[i], SIZES[i])
    kept = [i for i in range(len(SIZES)) if i not in released]
    size = np.array([SIZES[i] for i in kept])
    return arena, MovableRuns(np.array([starts[i] for i in kept]), size, size.copy())


def test_the_window_with_the_fewest_tokens_moves_down() -> None:
    arena, runs = crowded(0, 2, 4)  # holes of 10 at 0, 30 and 70; runs of 20 and 30 between them
    moved, target = compact(arena, 20, runs)
    assert (moved.tolist(), target.tolist()) == ([0], [0])
    assert arena.holes == [(20, 20), (70, 10)] and arena.free == 30


def test_all_holes_become_one_where_all_are_needed() -> None:
    arena, runs = crowded(0, 2, 4)
    moved, target = compact(arena, 30, runs)
    assert (moved.tolist(), target.tolist()) == ([0, 1], [0, 20])
    assert arena.holes == [(50, 30)]


def test_nothing_moves_beyond_the_limit_or_past_what_is_fixed() -> None:
    arena, runs = crowded(0, 2, 4)
    before = arena.holes
    assert compact(arena, 30, runs, limit=49) is None
    assert compact(crowded(0, 2, 4)[0], 20, runs, limit=20)  # two windows, the other one costs 30
    fixed = MovableRuns(runs.start[1:], runs.size[1:], runs.tokens[1:])  # the run at 10 cannot move
    assert compact(arena, 30, fixed) is None
    assert arena.holes == before
    moved, _ = compact(arena, 20, fixed)
    assert fixed.start[moved].tolist() == [40]


def test_a_full_or_unbroken_arena_has_nothing_to_move() -> None:
    empty = MovableRuns(*(np.zeros(0, np.int64),) * 3)
    assert compact(Arena(0, 100), 101, empty) is None
    assert compact(crowded()[0], 1, crowded()[1]) is None

"""Are holes joined in the compiled core as `compact` and `Joining` join them?"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwmodel.kernel.jit import simulation
from policies.allocators.arena import Arena
from policies.allocators.compaction import MovableRuns, compact
from policies.serving.plain.plain_joining import COPIED, join
from policies.serving.plain.plain_state import NOW, RULES, PlainQueue, PlainRequests, holes, no_runs
from tests.rotation import LONG


@simulation
def _joined(now: Any, rules: Any, q: Any, c: Any, r: Any, h: Any, size: int) -> bool:
    return join(now[0], rules[0], q, c, r, h, size)


class _Scene:
    """An arena that is full but for random holes; some of the runs in it are of nobody."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        parts = rng.integers(1, 6, rng.integers(2, 14))
        self.arena = Arena(0, int(parts.sum()))
        starts = np.cumsum(parts) - parts
        kinds = rng.choice(3, len(parts), p=(0.5, 0.4, 0.1))  # held, free, what does not move
        for start, size, kind in zip(starts.tolist(), parts.tolist(), kinds.tolist(), strict=True):
            if kind != 1:
                _occupy(self.arena, start, size)
        held = np.flatnonzero(kinds == 0)
        self.start, self.size = starts[held], parts[held]
        self.tokens = np.minimum(rng.integers(0, 3, len(held)), self.size)
        self.fresh = rng.random(len(held)) < 0.3
        self.wanted = int(rng.integers(1, 9))
        self.limit = int(rng.integers(-1, 5))


def _occupy(arena: Arena, start: int, size: int) -> None:
    """Take these slots, which are free."""
    at = next(i for i, (s, n) in enumerate(arena.holes) if s <= start and start + size <= s + n)
    first, length = arena.holes[at]
    left = [(first, start - first), (start + size, first + length - start - size)]
    left = [each for each in left if each[1]]
    arena._starts[at : at + 1] = [s for s, _ in left]
    arena._sizes[at : at + 1] = [n for _, n in left]
    arena.free -= size


def test_are_the_same_runs_moved_to_the_same_places() -> None:
    moved = 0
    for seed in range(2000 if LONG else 500):
        scene = _Scene(seed)
        order = np.concatenate((np.flatnonzero(~scene.fresh), np.flatnonzero(scene.fresh)))
        count, several = len(order), len(order) + 20
        now, rules = np.zeros(1, NOW), np.zeros(1, RULES)
        now["running"], now["before"] = count, int((~scene.fresh).sum())
        rules["joins"], rules["joins_most"] = COPIED, scene.limit
        whole, none, flags = np.zeros(count, np.int64), np.zeros(count), np.zeros(count, np.bool_)
        wide = np.zeros((several, 5), np.int64)
        q = PlainRequests(
            whole, whole, whole, scene.tokens, scene.size, flags, whole, none, none, none, none,
            whole, whole,
        )  # fmt: skip
        own = holes(0, several)
        gaps = scene.arena.holes
        own.number[0] = len(gaps)
        for at, (start, size) in enumerate(gaps):
            own.start[at], own.size[at] = start, size
        start = scene.start.copy()
        r = no_runs()._replace(
            start=start, gaps=np.zeros((several, 2), np.int64), window=np.zeros(2, np.int64),
            order=np.zeros(several, np.int64), slid=np.zeros(several, np.int64),
            slid_from=np.full(several, -1, np.int64),
        )  # fmt: skip
        c = _queue(order, wide)
        done = _joined(now, rules, q, c, r, own, scene.wanted)
        tokens = np.where(scene.fresh, 0, scene.tokens)
        plan = None
        if scene.wanted <= scene.arena.free:
            runs = MovableRuns(scene.start, scene.size, tokens)
            limit = None if scene.limit < 0 else scene.limit
            plan = compact(scene.arena, scene.wanted, runs, limit)
        assert done == (plan is not None)
        expected = scene.start.copy()
        if plan is not None:
            expected[plan[0]] = plan[1]
            moved += len(plan[0])
            assert own.number[0] == len(scene.arena.holes)
            assert list(zip(own.start, own.size, strict=True))[: own.number[0]] == scene.arena.holes
            slid = [each for each in plan[0].tolist() if not scene.fresh[each]]
            assert r.slid[: int(now["slid"][0])].tolist() == slid
        assert start.tolist() == expected.tolist()
    assert moved > 50


def _queue(batch: Any, wide: Any) -> Any:
    one, real = np.zeros(1, np.int64), np.zeros(1)
    return PlainQueue(
        real, one, one, batch, wide, wide, one, real, one, one, one, one, one
    )  # fmt: skip

"""Compaction of an arena: runs slide down by address until the holes between them are one.

Which runs: those of the window of neighbouring holes that together suffice and have the fewest
stored tokens between them; the lowest of equals (assumed: what a driver that minimises its copies
would do). Knuth, The Art of Computer Programming vol. 1, 2.5, slides all of them.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field

from hwmodel.description.description import Strict, checked
from policies.allocators.arena import Arena, Fit
from policies.allocators.kv_groups import WindowKv
from policies.allocators.places import SpaceKind
from policies.requests.requests import IntArray


class ArenaOptions(Strict):
    """Part of the options of policies whose reservations are runs of one arena, before
    `PolicyOptions` in their bases; `orca` has them not, as a buddy's blocks begin at multiples of
    their size."""

    fit: Fit = "first"
    """Which hole a reservation, or a slab, takes (assumed)."""
    prefixes: Literal["recompute", "copy"] = "recompute"
    """What is done about tokens in memory that an admitted request begins with: of earlier turns of
    its session, of a system prompt, of its own last residence. `recompute`: nothing, since one run
    a request leaves nothing to share, and the papers of these policies say nothing of sharing.
    `copy`: they are copied into its run, as in a migration, from a request that runs, or from a
    run that was freed and not yet overwritten, which `fit: next` puts off longest (assumed)."""
    window_kv: Literal["ring", "full"] = "ring"
    """What layers with a sliding window keep: a ring buffer of the window, as Mistral's rolling
    buffer (Jiang et al. 2023, section 2) and the hybrid cache of Hugging Face's transformers, or
    the whole reservation. Assumed: no contiguous allocator's paper has such a model."""
    compaction: Literal["none", "copied", "free"] = "none"
    """What is done when an admission would fit into all free slots, but into no hole. `none`: it
    waits. `copied`: runs slide down until it fits, and their tokens are copied as in a migration.
    `free`: the same without the copies, so that holes cost nothing; a bound, not realisable."""
    compaction_tokens: Annotated[int, Field(ge=0)] | None = None
    """Most stored tokens to copy for one admission; it waits where that does not suffice."""
    stagger: Annotated[int, Field(ge=0)] = 0
    """Slots of a reservation that stay empty behind its run, so that runs of equal size do not all
    begin at multiples of a power of two, and meet in the same banks (docs/memory-time.md)."""

    @property
    def kv_of_windows(self) -> WindowKv:
        return self.window_kv

    @property
    def copies_prefixes(self) -> bool:
        return self.prefixes == "copy"

    @property
    def of_spaces(self) -> frozenset[str]:
        """Options about the space that an arena without holes has no use for."""
        return frozenset({"space", "compaction", "compaction_tokens"})

    def without_holes(self) -> Self:
        """The same in one arena whose holes are joined for nothing."""
        kept = self.model_dump(exclude=set(self.of_spaces))
        return type(self).model_validate({**kept, "space": "arena", "compaction": "free"})

    @checked
    def _limits_copies(self) -> None:
        if self.compaction_tokens is not None and self.compaction != "copied":
            raise ValueError("compaction_tokens belongs to compaction: copied")
        if self.prefixes == "copy" and self.compaction != "none":
            raise ValueError("prefixes: copy needs compaction: none, which leaves freed runs alone")


class RunOptions(Strict):
    """The same of policies that reserve runs of any size out of one space, before
    `ArenaOptions`."""

    space: SpaceKind = "arena"
    """One arena, or slabs of equal blocks cut on demand (assumed)."""

    @checked
    def _slabs_stay(self) -> None:
        if self.space == "slabs" and getattr(self, "compaction", "none") != "none":
            raise ValueError("compaction: the blocks of slabs do not move; space: arena does")


class MovableRuns(NamedTuple):
    """Allocated runs that may be moved, by address, int64 (n,)."""

    start: IntArray
    size: IntArray
    tokens: IntArray
    """What it costs to move each."""


def compact(
    arena: Arena, size: int, runs: MovableRuns, limit: int | None = None
) -> tuple[IntArray, IntArray] | None:
    """Make one hole of at least `size` slots: (indices of the runs to move, their new starts), the
    arena changed already; None (nothing changes) if `limit` tokens do not suffice.

    What is allocated in the arena and not in `runs` stays where it is.
    """
    start, slots = np.array(arena.holes, np.int64).reshape(-1, 2).T
    behind = np.searchsorted(start, runs.start, side="right") - 1  # the hole below each run
    inner = np.flatnonzero((behind >= 0) & (behind < len(start) - 1))
    between = max(len(start) - 1, 0)
    sums = [np.bincount(behind[inner], each[inner], between) for each in (runs.size, runs.tokens)]
    fixed = sums[0] != start[1:] - (start + slots)[:-1]
    free, cost, walls = (np.concatenate(([0], np.cumsum(x))) for x in (slots, sums[1], fixed))
    last = np.searchsorted(free, free[:-1] + size) - 1  # of the window that each hole begins
    first = np.flatnonzero(last < len(start))
    first = first[walls[last[first]] == walls[first]]
    if not len(first):
        return None
    price = cost[last[first]] - cost[first]
    best = int(first[price.argmin()])
    if limit is not None and price.min() > limit:
        return None
    moved = inner[(behind[inner] >= best) & (behind[inner] < last[best])]
    target = start[best] + np.cumsum(runs.size[moved]) - runs.size[moved]
    arena.join(best, int(last[best]))
    return moved, target

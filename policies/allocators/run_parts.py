"""What an allocator of runs can do beside its contract, each a part that it has: find what lies in
memory, and copy it; swap; have room for drafts and states; fork; join holes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from policies.allocators.allocator import Demand, Limits
from policies.allocators.arena import Arena
from policies.allocators.capabilities import (
    Caches,
    CopiesKv,
    Drafts,
    Forks,
    KeepsStates,
    Migration,
    Swaps,
)
from policies.allocators.compaction import MovableRuns, compact
from policies.allocators.kv_layout import ByteRuns
from policies.allocators.remains import Remains, TokenRun
from policies.allocators.run_holder import RunHolder
from policies.allocators.state_places import behind
from policies.requests.requests import IntArray


class RunCopies(Caches):
    """What requests begin with is copied into their runs, where the options say so. `remains`: what
    freed runs have left; None: nothing is copied. `copied`: what requests that were admitted since
    the last `take` begin with."""

    def __init__(self, runs: RunHolder) -> None:
        self._of = runs
        dims = runs.layout.dims
        flat = dims.index("token") == dims.index("unit") + 1
        self.remains = Remains(flat) if runs.options.copies_prefixes else None
        self.copied: dict[int, Migration] = {}

    def cached(self, request: int, limit: int, demand: Demand | None = None) -> int:
        """See `Caches.cached`: tokens that `reserve` would copy."""
        if demand is None or self.remains is None:
            return 0
        return self._source(self.remains, request, limit, demand).tokens

    def release_known(self, request: int, tokens: int) -> int:
        self._of.require(request)
        self._of.stored[request] = tokens
        return self.release(request)

    def release(self, request: int) -> int:
        return self._of.release(request)

    @property
    def discards(self) -> bool:
        return self.remains is None

    def forget(self) -> None:
        if self.remains is not None:
            self.remains = Remains(self.remains.flat)

    def enter(self, request: int, demand: Demand, start: int, slots: int, tokens: int) -> None:
        """A request of so many tokens gets these slots: what lies there is lost."""
        if self.remains is None:
            return
        copy = self._source(self.remains, request, tokens - 1, demand)
        self.remains.overwrite(start, slots)
        if copy.tokens and not (self.remains.flat and copy.source == start):
            self.copied[request] = copy._replace(target=start)

    def leave(self, request: int) -> None:
        """A request is about to give its run up."""
        if self.remains is not None:
            self.remains.leave(self._run(request))
        self.copied.pop(request, None)

    def take(self) -> list[Migration]:
        """Those that were copied, once."""
        copies = list(self.copied.values())
        self.copied.clear()
        return copies

    def _source(self, remains: Remains, request: int, limit: int, demand: Demand) -> Migration:
        """The copy of as many of a request's first `limit` tokens as one run in memory holds."""
        best, of = Migration(request, -1, -1, 0, 0), self._of
        unready = of.fresh | of.filling | of.pinned
        held = (r for r in np.flatnonzero(of.resident).tolist() if r not in unready)
        for run in (*remains.runs, *map(self._run, held)):
            if (tokens := min(run.holds(request, demand), limit)) > best.tokens:
                best = Migration(request, run.start, -1, tokens, run.size)
        return best

    def _run(self, request: int) -> TokenRun:
        columns = (self._of.start, self._of.reserved, self._of.stored)
        return TokenRun(
            request, self._of.demands[request], *(int(each[request]) for each in columns)
        )


class _Away(NamedTuple):
    """A request that is swapped out."""

    demand: Demand
    stored: int


class RunSwaps(Swaps):
    """A run is given up, and another one reserved."""

    def __init__(self, runs: RunHolder) -> None:
        self._of = runs
        self._away: dict[int, _Away] = {}

    def swap_out(self, request: int) -> int:
        self._of.require(request)
        demand, stored = self._of.demands[request], int(self._of.stored[request])
        if stored >= demand.prompt:  # the last token that was generated is not stored yet
            demand = demand._replace(generated=stored - demand.prompt + 1)
        self._away[request] = _Away(demand, stored)
        self._of.release(request)
        return stored

    def swap_in(self, request: int) -> bool:
        away = self._away[request]
        if not self._of.receive(request, away.demand, away.stored):
            return False
        del self._away[request]
        return True


class RunDrafts(Drafts):
    """Drafts lie behind the tokens, in the slack of a run."""

    def __init__(self, runs: RunHolder) -> None:
        self._of = runs

    def store_ahead(
        self, requests: IntArray, kept: IntArray, beyond: IntArray, unseen: IntArray
    ) -> int:
        of = self._of
        room = of.room_in(of.reserved[requests]) - of.stored[requests] >= kept
        fitting = len(requests) if room.all() else int(room.argmin())
        of.stored[requests[:fitting]] += kept[:fitting]
        return fitting


class RunStates(KeepsStates):
    """In the last slots of a run, copy by copy, layer by layer."""

    def __init__(self, runs: RunHolder) -> None:
        self._of = runs
        self.limits: Limits = runs.limits

    def state_runs(self, request: int, copy: int, nth: int, size: int) -> ByteRuns:
        start, reserved = int(self._of.start[request]), int(self._of.reserved[request])
        place = self.limits.state_place(reserved, copy, nth)
        return behind(self._of.layout, start, reserved, *place, size)

    def moved(self, move: Migration, nth: int, size: int) -> tuple[ByteRuns, ByteRuns]:
        """See `Contiguous.moved_states`."""
        layout, room = self._of.layout, int(self._of.reserved[move.request])
        old, new = (
            behind(layout, start, slots, *self.limits.state_place(slots, 0, nth), size)
            for start, slots in ((move.source, move.left), (move.target, room))
        )
        return old, new


class RunForks(CopiesKv, Forks):
    """The whole of a run is copied, as nothing can be shared."""

    def __init__(self, runs: RunHolder) -> None:
        self._of = runs
        self._made: list[Migration] = []
        """Since the last `copies`."""

    def fork(self, request: int, source: int) -> None:
        of = self._of
        of.require(request)
        of.require(source)
        start, tokens = int(of.start[source]), int(of.stored[request])
        target, room = int(of.start[request]), int(of.reserved[request])
        self._made.append(Migration(request, start, target, tokens, room))

    def copies(self) -> list[Migration]:
        made, self._made = self._made, []
        return made


class Joining:
    """Runs that slide down until holes are one, where `ArenaOptions.compaction` says so.
    `moved`: where the runs lay that have moved since the last `take`."""

    def __init__(self, runs: RunHolder) -> None:
        self._of = runs
        self.on = getattr(runs.options, "compaction", "none") != "none"
        self.moved: dict[int, int] = {}

    def make_room(self, arena: Arena, size: int) -> bool:
        """Whether there is a hole of `size` now."""
        of = self._of
        if not self.on or size > arena.free:
            return False
        held = np.flatnonzero(of.resident)
        held = held[~np.isin(held, list(of.pinned))]
        held = held[np.argsort(of.start[held])]
        tokens = of.stored[held].copy()
        tokens[np.isin(held, list(of.fresh))] = 0
        runs = MovableRuns(of.start[held], of.reserved[held], tokens)
        plan = compact(arena, size, runs, of.options.compaction_tokens)
        if plan is None:
            return False
        moved, target = held[plan[0]], plan[1]
        if of.options.compaction == "copied":
            for request in moved.tolist():
                if request not in of.fresh:
                    self.moved.setdefault(request, int(of.start[request]))
        of.start[moved] = target
        return True

    def take(self) -> list[Migration]:
        """The copies of those that moved, once."""
        of = self._of
        columns = of.start, of.stored, of.reserved
        moved = [
            Migration(request, source, *(int(each[request]) for each in columns))
            for request, source in self.moved.items()
            if of.resident[request] and source != of.start[request]
        ]
        self.moved.clear()
        return moved

"""Reservations: a contiguous run whose size is decided when the request is admitted.

`ContiguousAllocator` is the base of all policies with one run, `ReservingAllocator` of those that
only decide how large it is.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Allocator, Demand, Limits
from policies.allocators.arena import Arena
from policies.allocators.capabilities import (
    Caches,
    Contiguous,
    CopiesKv,
    Drafts,
    Forks,
    KeepsStates,
    Migration,
    Remembers,
    Swaps,
)
from policies.allocators.columns import add_to, least_room
from policies.allocators.compaction import ArenaOptions, Runs, compact
from policies.allocators.kv_layout import ByteRuns, KvLayout, Units
from policies.allocators.places import Space
from policies.allocators.remains import Remains, Run
from policies.allocators.slabs import space
from policies.allocators.state_places import behind
from policies.requests.requests import IntArray


class _Away(NamedTuple):
    """A request that is swapped out."""

    demand: Demand
    stored: int


class ContiguousAllocator(
    Allocator, Contiguous, Caches, Remembers, Swaps, Drafts, KeepsStates, CopiesKv,
    Forks,
):  # fmt: skip
    """An allocator whose reservation is one run of slots, `start[request]`; a policy calls
    `_occupy` and `_vacate`. `_demands`: the demand of each resident at its admission."""

    holds_states = True

    def __init__(self, layout: KvLayout, requests: int, limits: Limits, options: Any) -> None:
        super().__init__(layout, requests, limits, options)
        self.start = np.full(requests, -1, np.int64)
        arena = options if isinstance(options, ArenaOptions) else None
        self._compacts = arena is not None and arena.compaction != "none"
        stagger = 0 if arena is None else arena.stagger
        self.slack = stagger + limits.lookahead.slots + limits.states * limits.kept_states
        """Slots at the end of each reservation that no token may take, but drafts and states."""
        self._demands: dict[int, Demand] = {}
        self._away: dict[int, _Away] = {}
        self._moved: dict[int, int] = {}
        """Where the runs lay that compaction has moved since the last `moves`."""
        self._fresh: set[int] = set()
        """Requests admitted since then: they have stored nothing yet."""
        flat = layout.dims.index("token") == layout.dims.index("unit") + 1
        self._remains = Remains(flat) if options.copies_prefixes else None
        self._copied: dict[int, Migration] = {}
        """What requests that were admitted since then begin with."""
        self._forks: list[Migration] = []
        """Copies of one request's run to another's since the last `copies`."""
        self._filling: set[int] = set()
        """Requests that store a part of their prompts in this step."""

    @property
    def preempts(self) -> Literal["last", "itself"]:
        return "itself"

    def receive(self, request: int, demand: Demand, tokens: int) -> bool:
        if not self.reserve(request, demand, tokens):
            return False
        self._copied.pop(request, None)
        return True

    def grow(self, request: int, tokens: int) -> bool:
        self._require(request)
        if self.stored[request] + tokens > self._holds(self.reserved[request]):
            return False
        self._filling.add(request)
        self.stored[request] += tokens
        return True

    def store_ahead(
        self, requests: IntArray, kept: IntArray, beyond: IntArray, unseen: IntArray
    ) -> int:
        room = self._holds(self.reserved[requests]) - self.stored[requests] >= kept
        fitting = len(requests) if room.all() else int(room.argmin())
        self.stored[requests[:fitting]] += kept[:fitting]
        return fitting

    def headroom(self, requests: IntArray, limit: int) -> int:
        if self.layout.groups is None:
            most = limit + self.slack
            return least_room(self.reserved, self.stored, requests, most) - self.slack
        free = self._holds(self.reserved[requests]) - self.stored[requests]
        return int(np.minimum.reduce(free, initial=limit))

    def advance(self, requests: IntArray, rounds: int) -> None:
        add_to(self.stored, requests, rounds)

    def extent_count(self, requests: IntArray) -> int:
        return len(requests) * self.layout.parts

    def units(self, request: int) -> Units:
        self._require(request)
        return Units(
            self.start[request : request + 1].copy(),
            self.stored[request : request + 1].copy(),
            self.reserved[request : request + 1].copy(),
        )

    def layer_units(self, request: int, group: int) -> Units:
        held, stored = int(self.reserved[request]), int(self.stored[request])
        return self.layout.unit_of(int(self.start[request]), stored, held, group)

    def state_runs(self, request: int, copy: int, nth: int, size: int) -> ByteRuns:
        return self._states(int(self.start[request]), int(self.reserved[request]), copy, nth, size)

    def moved_states(self, move: Migration, nth: int, size: int) -> tuple[ByteRuns, ByteRuns]:
        room = int(self.reserved[move.request])
        return (
            self._states(move.source, move.left, 0, nth, size),
            self._states(move.target, room, 0, nth, size),
        )

    def _states(self, start: int, reserved: int, copy: int, nth: int, size: int) -> ByteRuns:
        """In the last slots of a reservation, copy by copy, layer by layer."""
        limits = self.limits
        first = reserved - (limits.kept_states - copy) * limits.states
        offset = nth * limits.state_bytes
        return behind(self.layout, start, reserved, first, first + limits.states, offset, size)

    def swap_out(self, request: int) -> int:
        self._require(request)
        demand, stored = self._demands[request], int(self.stored[request])
        if stored >= demand.prompt:  # the last token that was generated is not stored yet
            demand = demand._replace(generated=stored - demand.prompt + 1)
        self._away[request] = _Away(demand, stored)
        self.release(request)
        return stored

    def swap_in(self, request: int) -> bool:
        away = self._away[request]
        if not self.receive(request, away.demand, away.stored):
            return False
        del self._away[request]
        return True

    def cached(self, request: int, limit: int, demand: Demand | None = None) -> int:
        """See `Caches.cached`: tokens that `reserve` would copy."""
        if demand is None or self._remains is None:
            return 0
        return self._source(request, limit, demand).tokens

    def release_known(self, request: int, tokens: int) -> int:
        self._require(request)
        self.stored[request] = tokens
        return self.release(request)

    def finished(self, request: int, prompt: int, output: int) -> None:
        """Nothing is kept for a request alone."""

    @property
    def discards(self) -> bool:
        return self._remains is None

    def forget(self) -> None:
        if self._remains is not None:
            self._remains = Remains(self._remains.flat)

    def _source(self, request: int, limit: int, demand: Demand) -> Migration:
        """The copy of as many of a request's first `limit` tokens as one run in memory holds."""
        best = Migration(request, -1, -1, 0, 0)
        if self._remains is None:
            return best
        held = np.flatnonzero(self.resident).tolist()
        unready = self._fresh | self._filling | self._pinned
        runs = (self._run(r) for r in held if r not in unready)
        for run in (*self._remains.runs, *runs):
            if (tokens := min(run.holds(request, demand), limit)) > best.tokens:
                best = Migration(request, run.start, -1, tokens, run.size)
        return best

    def _run(self, request: int) -> Run:
        columns = (self.start, self.reserved, self.stored)
        return Run(request, self._demands[request], *(int(each[request]) for each in columns))

    def fork(self, request: int, source: int) -> None:
        """See `Forks.fork`: the whole of it is copied, as nothing can be shared."""
        self._require(request)
        self._require(source)
        start, tokens = int(self.start[source]), int(self.stored[request])
        target, room = int(self.start[request]), int(self.reserved[request])
        self._forks.append(Migration(request, start, target, tokens, room))

    def copies(self) -> list[Migration]:
        made, self._forks = self._forks, []
        return made

    def moves(self) -> list[Migration]:
        copies = list(self._copied.values())
        self._copied.clear()
        self._filling.clear()
        if not self._moved:
            self._fresh.clear()
            return copies
        moved = [
            Migration(
                request,
                source,
                int(self.start[request]),
                int(self.stored[request]),
                int(self.reserved[request]),
            )
            for request, source in self._moved.items()
            if self.resident[request] and source != self.start[request]
        ]
        self._moved.clear()
        self._fresh.clear()
        return moved

    def _slots(self, tokens: Any) -> Any:
        """Slots of a reservation for so many tokens: an int, or int64 (n,)."""
        return self.layout.slots_of(tokens) + self.slack

    def _holds(self, slots: Any) -> Any:
        """Tokens that a reservation of so many slots has room for."""
        room = self.layout.tokens_in(slots - self.slack if self.slack else slots)
        return room if self.layout.groups is None else np.minimum(room, self.limits.max_model_len)

    def _make_room(self, arena: Arena, size: int) -> bool:
        """By compaction, where the options allow it; whether there is a hole of `size` now."""
        options = self.options
        if not self._compacts or size > arena.free:
            return False
        held = np.flatnonzero(self.resident)
        held = held[~np.isin(held, list(self._pinned))]
        held = held[np.argsort(self.start[held])]
        tokens = self.stored[held].copy()
        tokens[np.isin(held, list(self._fresh))] = 0
        runs = Runs(self.start[held], self.reserved[held], tokens)
        plan = compact(arena, size, runs, options.compaction_tokens)
        if plan is None:
            return False
        moved, target = held[plan[0]], plan[1]
        if options.compaction == "copied":
            for request in moved.tolist():
                if request not in self._fresh:
                    self._moved.setdefault(request, int(self.start[request]))
        self.start[moved] = target
        return True

    def _occupy(self, request: int, demand: Demand, start: int, slots: int, tokens: int) -> None:
        self.start[request] = start
        self._fresh.add(request)
        self._demands[request] = demand
        if self._remains is not None:
            copy = self._source(request, tokens - 1, demand)
            self._remains.overwrite(start, slots)
            if copy.tokens and not (self._remains.flat and copy.source == start):
                self._copied[request] = copy._replace(target=start)
        self._admit(request, slots, tokens)

    def _vacate(self, request: int) -> int:
        if self._remains is not None:
            self._remains.leave(self._run(request))
        self._copied.pop(request, None)
        self.start[request] = -1
        self._moved.pop(request, None)
        del self._demands[request]
        return self._dismiss(request)


class ReservingAllocator(ContiguousAllocator):
    """Runs of `size(request, demand)` slots or more out of one space. `reserve` raises
    DescriptionError where that is no whole number."""

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: Any,
        own: Space | None = None,
    ) -> None:  # fmt: skip
        """own: what runs are taken out of; None: the space that its `RunOptions` describe."""
        super().__init__(layout, requests, limits, options)
        self._space = own or space(options.space, 0, layout.slots, options.fit)

    @property
    def free_slots(self) -> int:
        return self._space.free

    @property
    def largest_hole(self) -> int:
        return self._space.largest_hole

    def reserve(self, request: int, demand: Demand, tokens: int) -> bool:
        if self.resident[request]:
            raise ValueError(f"request {request} already holds memory")
        size, own = self._checked_size(request, demand), self._space
        place = own.place(size)
        if place is None and isinstance(own, Arena) and self._make_room(own, size):
            place = own.place(size)
        if place is None:
            return False
        if tokens > self._holds(place.size):
            raise DescriptionError(
                f"policy {self.options.name}: size gave request {request} {size} slots, too few "
                f"for its first {tokens} tokens"
            )
        self._occupy(request, demand, place.start, place.size, tokens)
        return True

    def refuses(self, request: int, demand: Demand, tokens: int) -> bool:
        if self._compacts:
            return False
        return self._checked_size(request, demand) > self._space.largest_hole

    def _checked_size(self, request: int, demand: Demand) -> int:
        """`size`, which a plug-in may have written."""
        size = self.size(request, demand)
        if not isinstance(size, int | np.integer) or size < 1:
            raise DescriptionError(
                f"policy {self.options.name}: {type(self).__name__}.size of request {request}: "
                f"expected a whole number of slots, 1 or more; got {size!r}"
            )
        return size

    def release(self, request: int) -> int:
        self._require(request)
        self._space.give_back(int(self.start[request]), int(self.reserved[request]))
        return self._vacate(request)

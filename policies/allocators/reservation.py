"""Reservations: a contiguous run whose size is decided when the request is admitted."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np

from policies.allocators.allocator import Allocator, Demand, Limits
from policies.allocators.arena import Arena
from policies.allocators.capabilities import Contiguous, Migration
from policies.allocators.columns import add_to, least_room
from policies.allocators.compaction import ArenaOptions
from policies.allocators.kv_layout import ByteRuns, KvLayout, Units
from policies.allocators.places import Place, SlotSpace
from policies.allocators.run_parts import (
    Joining,
    RunCopies,
    RunDrafts,
    RunForks,
    RunStates,
    RunSwaps,
)
from policies.allocators.sizes import OneSpace, Sizes, checked_size
from policies.requests.requests import IntArray


class ContiguousAllocator(Allocator, Contiguous):
    """An allocator whose reservation is one run of slots, `start[request]`. A policy says how large
    it is (`size`, `needs`); what runs are taken out of are its `sizes`.

    `demands`: the demand of each resident at its admission. `fresh`: requests admitted since the
    last `moves`, which have stored nothing yet. `filling`: those that store a part of their prompts
    in this step."""

    holds_states = True
    members: ClassVar[tuple[type, ...]] = (RunCopies, RunSwaps, RunDrafts, RunStates, RunForks)
    Sizes: ClassVar[type[Sizes]] = OneSpace
    """How large runs are, and out of what they are taken."""

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: Any,
        own: SlotSpace | None = None,
    ) -> None:  # fmt: skip
        """own: what runs are taken out of; None: the space that its `RunOptions` describe."""
        super().__init__(layout, requests, limits, options)
        self.start = np.full(requests, -1, np.int64)
        stagger = options.stagger if isinstance(options, ArenaOptions) else 0
        self.slack = stagger + limits.lookahead.slots + limits.states * limits.kept_states
        """Slots at the end of each reservation that no token may take, but drafts and states."""
        self.demands: dict[int, Demand] = {}
        self.fresh: set[int] = set()
        self.filling: set[int] = set()
        self.prefixes = RunCopies(self)
        self.joining = Joining(self)
        self.states = RunStates(self)
        self.sizes: Sizes = self.Sizes(self, own)
        parts = (self.prefixes, self.states, RunSwaps(self), RunDrafts(self), RunForks(self))
        self.has = (*parts, self.sizes)

    @abstractmethod
    def size(self, request: int, demand: Demand) -> int:
        """See `Contiguous.size`."""

    @property
    def free_slots(self) -> int:
        return self.sizes.free

    @property
    def largest_hole(self) -> int:
        return self.sizes.largest_hole

    @property
    def fragmentation(self) -> float:
        """Share of the free slots that no reservation can have: outside the largest hole, or when
        partitioned, stranded in no block."""
        return self.sizes.fragmentation

    @property
    def reach(self) -> int:
        return self.sizes.reach

    @property
    def preempts(self) -> Literal["last", "itself"]:
        return self.sizes.preempts

    def reserve(self, request: int, demand: Demand, tokens: int) -> bool:
        if self.resident[request]:
            raise ValueError(f"request {request} already holds memory")
        place = self.sizes.place(request, demand, tokens)
        if place is None:
            return False
        self.start[request] = place.start
        self.fresh.add(request)
        self.demands[request] = demand
        self.prefixes.enter(request, demand, place.start, place.size, tokens)
        self._admit(request, place.size, tokens)
        return True

    def receive(self, request: int, demand: Demand, tokens: int) -> bool:
        if not self.reserve(request, demand, tokens):
            return False
        self.prefixes.copied.pop(request, None)
        return True

    def refuses(self, request: int, demand: Demand, tokens: int) -> bool:
        if self.joining.on:
            return False
        return checked_size(self, request, demand) > self.sizes.largest_hole

    def grow(self, request: int, tokens: int) -> bool:
        self.require(request)
        if self.stored[request] + tokens > self.room_in(self.reserved[request]):
            return False
        self.filling.add(request)
        self.stored[request] += tokens
        return True

    def release(self, request: int) -> int:
        self.require(request)
        self.sizes.give_back(Place(int(self.start[request]), int(self.reserved[request])))
        self.prefixes.leave(request)
        self.start[request] = -1
        self.joining.moved.pop(request, None)
        del self.demands[request]
        return self._dismiss(request)

    def headroom(self, requests: IntArray, limit: int) -> int:
        if self.layout.groups is None:
            most = limit + self.slack
            return least_room(self.reserved, self.stored, requests, most) - self.slack
        free = self.room_in(self.reserved[requests]) - self.stored[requests]
        return int(np.minimum.reduce(free, initial=limit))

    def advance(self, requests: IntArray, rounds: int) -> None:
        add_to(self.stored, requests, rounds)

    def extent_count(self, requests: IntArray) -> int:
        return len(requests) * self.layout.parts

    def units(self, request: int) -> Units:
        self.require(request)
        return Units(
            self.start[request : request + 1].copy(),
            self.stored[request : request + 1].copy(),
            self.reserved[request : request + 1].copy(),
        )

    def layer_units(self, request: int, group: int) -> Units:
        held, stored = int(self.reserved[request]), int(self.stored[request])
        return self.layout.unit_of(int(self.start[request]), stored, held, group)

    def moves(self) -> list[Migration]:
        moved: list[Migration] = []
        if self.prefixes.copied or self.joining.moved:
            moved = self.prefixes.take() + self.joining.take()
        self.filling.clear()
        self.fresh.clear()
        return moved

    def moved_states(self, move: Migration, nth: int, size: int) -> tuple[ByteRuns, ByteRuns]:
        return self.states.moved(move, nth, size)

    def make_room(self, arena: Arena, size: int) -> bool:
        """By joining holes, where the options allow it; whether there is one of `size` now."""
        return self.joining.make_room(arena, size)

    def overwrite(self, start: int, size: int) -> None:
        """These slots are taken: what lies there is not found again."""
        if self.prefixes.remains is not None:
            self.prefixes.remains.overwrite(start, size)

    def slots_for(self, tokens: Any) -> Any:
        """Slots of a reservation for so many tokens: an int, or int64 (n,)."""
        return self.layout.slots_of(tokens) + self.slack

    def room_in(self, slots: Any) -> Any:
        """Tokens that a reservation of so many slots has room for."""
        room = self.layout.tokens_in(slots - self.slack if self.slack else slots)
        return room if self.layout.groups is None else np.minimum(room, self.limits.max_model_len)

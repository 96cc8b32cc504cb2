"""A ceiling: an allocator that reserves what is stored, token by token, and whose layout costs
nothing: each request's tokens are one run at any time, as if compacted for free, and the tokens of
a preempted request are still there when it is admitted again. It shares no prompts among requests
and by default knows no output length.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from policies.allocators.allocator import Allocator, Demand, Limits
from policies.allocators.capabilities import OnDemand
from policies.allocators.ceiling_options import IdealOptions, stored_at_the_end
from policies.allocators.declaration import CHOICES, References
from policies.allocators.ideal_parts import IdealCaching, IdealDrafts, IdealStates, IdealSwaps
from policies.allocators.kv_layout import KvLayout, Units
from policies.allocators.losses import GROWING
from policies.requests.requests import IntArray


class IdealAllocator(Allocator, OnDemand):
    """Requests one after another without gaps, in order of their ids.

    `left`, int64 (requests,): tokens that a preempted request had stored. `whole`, as well: slots
    of each admitted request at its end. `waits`: whether it is admitted when there is room for all
    of it."""

    Options = IdealOptions
    reading = "a ceiling: what is stored, token by token, and layout costs nothing"
    losses = GROWING
    searched = {"reserve": CHOICES, "admit_on": CHOICES}
    references = References()
    by_request = ("stored",)  # where a request lies is told by what all others here hold
    holds_states = True
    members = (IdealCaching, IdealSwaps, IdealDrafts, IdealStates)
    options: IdealOptions

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: IdealOptions
    ) -> None:
        super().__init__(layout, requests, limits, options)
        self._states = limits.states * limits.kept_states
        """Slots that each resident holds for its states."""
        self.left = np.zeros(requests, np.int64)
        self.whole = np.zeros(requests, np.int64)
        self._short = -1
        """The resident whose reservation is not whole yet, the last admitted; -1: none."""
        self._ahead = options.reserve == "output"
        self.waits = options.admit_on == "output"
        self.has = tuple(kind(self) for kind in self.members)

    @property
    def preempts(self) -> Literal["last", "itself"]:
        return "itself" if self._ahead else "last"

    def needs(self, prompt: IntArray, output: IntArray) -> IntArray:
        needed: IntArray = self.slots_for(stored_at_the_end(prompt, output, self.limits.ahead))
        return needed

    def fits(self, tokens: int, request: int = -1, demand: Demand | None = None) -> bool:
        if demand is not None and self.waits:
            tokens = max(tokens, self._at_the_end(demand))
        return int(self.slots_for(tokens)) <= self.free_slots

    def _at_the_end(self, demand: Demand) -> int:
        return int(stored_at_the_end(demand.prompt, demand.output, self.limits.ahead))

    def reserve(self, request: int, demand: Demand, tokens: int) -> bool:
        if self.resident[request]:
            raise ValueError(f"request {request} already holds memory")
        if not self.fits(tokens, request, demand):
            return False
        self.whole[request] = self.slots_for(self._at_the_end(demand))
        self.enter(request, tokens)
        return True

    def grow(self, request: int, tokens: int) -> bool:
        self.require(request)
        more = self.slots_for(self.stored[request] + tokens) - self.reserved[request]
        if more > (0 if self._ahead else self.free_slots):
            return False
        self._store(np.array([request]), np.array([tokens]))
        return True

    def headroom(self, requests: IntArray, limit: int) -> int:
        if self._ahead:
            held = self.layout.tokens_in(self.reserved[requests] - self._states)
            room = held - self.stored[requests]
            return min(limit, int(room.min(initial=limit)))
        if self.layout.groups is not None:
            return self._headroom_in_windows(requests, limit)
        return min(limit, self.free_slots // len(requests)) if len(requests) else limit

    def taken(self, requests: IntArray, rounds: int) -> int:
        stored = self.stored[requests] + rounds
        return int(np.maximum(self.slots_for(stored) - self.reserved[requests], 0).sum())

    def advance(self, requests: IntArray, rounds: int) -> None:
        self._store(requests, np.full(len(requests), rounds))

    def grown(self, requests: IntArray, rounds: int) -> IntArray:
        if self._ahead:
            return np.zeros(rounds, np.int64)
        if self.layout.groups is not None:
            back = self.stored[requests] - np.arange(rounds - 1, -1, -1)[:, None]
            now: IntArray = self.reserved[requests].sum() - self.slots_for(back).sum(axis=1)
            return now
        return len(requests) * np.arange(rounds - 1, -1, -1)

    def release(self, request: int) -> int:
        self.require(request)
        self.left[request] = self.stored[request]
        held = self._dismiss(request)
        self._fill(-1 if self._short == request else self._short)
        return held

    def extent_count(self, requests: IntArray) -> int:
        return len(requests) * self.layout.parts

    def units(self, request: int) -> Units:
        self.require(request)
        held = self.reserved[request : request + 1].copy()
        stored = self.layout.slots_of(self.stored[request : request + 1].copy())
        return Units(np.array([self.reserved[:request].sum()]), stored, held)

    def layer_units(self, request: int, group: int) -> Units:
        held = int(self.reserved[request])
        start = int(self.reserved[:request].sum())
        return self.layout.unit_of(start, int(self.stored[request]), held, group)

    def slots_for(self, tokens: Any) -> Any:
        """Slots that a request of so many tokens holds: an int, or int64 (n,)."""
        return self.layout.slots_of(tokens) + self._states

    def enter(self, request: int, tokens: int) -> None:
        """Admit a request, whose first tokens have room."""
        self._admit(request, int(self.slots_for(tokens)), tokens)
        if self._ahead:
            self._fill(request)

    def _fill(self, request: int) -> None:
        """Give a request, if any, the free slots that its reservation still lacks."""
        self._short = -1
        if request >= 0 and (lacks := int(self.whole[request] - self.reserved[request])) > 0:
            more = min(lacks, self.free_slots)
            self.reserved[request] += more
            self.reserved_total += more
            self._short = request if more < lacks else -1

    def _store(self, requests: IntArray, tokens: IntArray) -> None:
        self.stored[requests] += tokens
        if not self._ahead:
            more = self.slots_for(self.stored[requests]) - self.reserved[requests]
            self.reserved[requests] += more
            self.reserved_total += int(more.sum())

    def _headroom_in_windows(self, requests: IntArray, limit: int) -> int:
        """As `headroom`, where a token of a request that has filled its windows takes fewer
        slots."""
        room = self.free_slots + int(self.reserved[requests].sum())
        low, high = 0, limit
        while low < high:
            rounds = (low + high + 1) // 2
            fits = self.slots_for(self.stored[requests] + rounds).sum() <= room
            low, high = (rounds, high) if fits else (low, rounds - 1)
        return low

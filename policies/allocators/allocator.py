"""The contract of a KV allocator: who holds which token slots of the device.

Slots are [0, layout.slots); `KvLayout` turns them into byte addresses. Requests are dense ids. An
allocator joins by one file and one line in `policies.allocators.registry`; the contract tests then
run on it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from hwmodel.description.description import Strict
from policies.allocators.arena import external_fragmentation
from policies.allocators.kv_layout import Extents, KvLayout, Units
from policies.predictors.prediction import Predictive
from policies.requests.requests import IntArray


class PolicyOptions(Strict):
    """Base of every policy's options; `name` is the registry key."""

    name: str


class Limits(NamedTuple):
    """Longest outputs and contexts the engine admits, in tokens."""

    max_tokens: int
    max_model_len: int


class Demand(NamedTuple):
    """What is known of a request when it asks for memory, in tokens."""

    prompt: int
    generated: int
    """Output tokens of earlier residences, which a preempted request prefills again as far as they
    are not `cached`."""
    prediction: Predictive
    prefix_id: int = -1
    """Requests of the same one begin alike; -1: this one shares its beginning with nobody."""
    prefix_tokens: int = 0
    """How many first tokens of the prompt it shares with them."""
    samples: int = 1
    """Outputs that are drawn at once from the one prompt."""
    output: int = 0
    """The output length that will come out, for those to read who are a ceiling and no policy."""


class Migration(NamedTuple):
    """A contiguous copy of `tokens` stored tokens between two runs of slots."""

    request: int
    source: int
    target: int
    tokens: int
    left: int
    """Slots of the old reservation, which `settle` frees; in a copy on write, of a block."""


class Allocator(ABC):
    """Base of all allocators. Per-request state, int64 (requests,): `stored` tokens and `reserved`
    slots, of all samples together and with what is shared, and `width`, the samples.

    A request is resident between a successful `reserve` and `release`. Operations on others raise
    KeyError; stored tokens never exceed reserved slots, and what shares a slot is the same token.
    """

    Options: ClassVar[type[PolicyOptions]]
    preempts: ClassVar[Literal["last", "itself"]] = "last"
    """Whom the engine preempts when a request can neither grow nor move."""
    moves_freely: ClassVar[bool] = False
    """Whether tokens may change their places unasked: a ceiling's right, and no policy's."""

    def __init__(self, layout: KvLayout, requests: int, limits: Limits, options: Any) -> None:
        self.layout = layout
        self.limits = limits
        self.options = options
        self.stored = np.zeros(requests, np.int64)
        self.reserved = np.zeros(requests, np.int64)
        self.resident = np.zeros(requests, np.bool_)
        self.width = np.ones(requests, np.int64)
        self.reserved_total = 0
        """Slots reserved by all residents, shared ones once; a running copy has both its places."""

    @property
    def slots(self) -> int:
        return self.layout.slots

    @property
    @abstractmethod
    def free_slots(self) -> int:
        """Slots no request holds."""

    @property
    @abstractmethod
    def largest_hole(self) -> int:
        """Slots of the largest reservation that could succeed now."""

    @property
    def fragmentation(self) -> float:
        """External fragmentation: share of free slots outside the largest hole."""
        return external_fragmentation(self.free_slots, self.largest_hole)

    @property
    def reach(self) -> int:
        """Slots of the largest reservation that the empty device can hold."""
        return self.slots

    @abstractmethod
    def needs(
        self, prompt: IntArray, output: IntArray, samples: IntArray | Literal[1] = 1
    ) -> IntArray:
        """Slots that requests of these lengths may come to ask for; above `reach`, never."""

    def cached(self, request: int, limit: int, demand: Demand | None = None) -> int:
        """How many first tokens of a request, at most `limit`, are in memory and would be its own
        after `reserve`: of its last residence and, as its `demand` tells, of what it shares."""
        return 0

    @property
    def loses_ends_first(self) -> bool:
        """Whether what is `cached` goes from its end on, a slot for each free one handed out: then
        who is refused is refused until somebody leaves."""
        return True

    def fits(self, tokens: int, request: int = -1, demand: Demand | None = None) -> bool:
        """Whether so many tokens of a request could be stored now, of any where none is named;
        `reserve` answers where it takes them all."""
        return True

    @abstractmethod
    def reserve(self, request: int, demand: Demand, tokens: int) -> bool:
        """Admit a request and store its first `tokens`, of which `cached(request, tokens - 1)` need
        no computing. False (nothing changes) if there is no room.

        The tokens of a request with several samples are its prompt, then one of each sample, then
        the next of each.
        """

    @abstractmethod
    def grow(self, request: int, tokens: int) -> bool:
        """Store `tokens` more. False (nothing changes) if there is no room."""

    @abstractmethod
    def release(self, request: int) -> int:
        """Free everything the request holds; returns the slots that were reserved for it."""

    @abstractmethod
    def units(self, request: int) -> Units:
        """The request's allocation units in token order."""

    def migrate(self, request: int) -> Migration | None:
        """Reserve a larger place for a request that cannot grow; None (nothing changes) if there is
        no room or the policy never moves. The old place stays held until `settle`."""
        self._require(request)
        return None

    def copies(self) -> list[Migration]:
        """Copies on write since the last call, which have room of their own already."""
        return []

    def settle(self) -> None:  # noqa: B027 - most policies have nothing to settle
        """The copies of this step are done: free the old places."""

    def headroom(self, requests: IntArray, limit: int) -> int:
        """How many rounds, up to `limit`, every one of `requests` can grow by one token of each of
        its samples a round."""
        room = (self.reserved[requests] - self.stored[requests]) // self.width[requests]
        return min(limit, int(room.min(initial=limit)))

    def advance(self, requests: IntArray, rounds: int) -> None:
        """`rounds` times: `grow(request, width)` for each of `requests` in order. Needs the
        headroom."""
        self.stored[requests] += rounds * self.width[requests]

    def grown(self, requests: IntArray, rounds: int) -> IntArray:
        """Slots by which `reserved_total` was less after each of the last `rounds` rounds of
        `advance(requests, ...)` than it is now, int64 (rounds,). None where reservations stay as
        they are; a policy whose `advance` reserves more says when."""
        return np.zeros(rounds, np.int64)

    def swap_out(self, request: int) -> int:
        """Free everything a request holds and remember it, for a copy of its tokens waits in host
        memory; returns the tokens that it had stored."""
        raise NotImplementedError(f"{self.options.name} does not swap")

    def swap_in(self, request: int) -> bool:
        """Hold again what `swap_out` remembered, wherever there is room. False (nothing changes) if
        there is none. Raises KeyError for a request that is not swapped out."""
        raise NotImplementedError(f"{self.options.name} does not swap")

    def tag(self, request: int, demand: Demand) -> int:
        """Class of requests that are batched together where the engine asks for that."""
        return 0

    def share_bounds(self, other: Allocator) -> None:  # noqa: B027 - most policies have none
        """Learn together with `other`, that of another card: what one adapts to, both have."""

    def clock(self, now_s: float) -> None:  # noqa: B027 - most policies need no time
        """It is `now_s` seconds; called before each step, never with less than before."""

    @property
    def due_s(self) -> float:
        """When `clock` may change what is admitted; inf where nothing is under way."""
        return math.inf

    def finished(self, request: int, prompt: int, output: int) -> None:  # noqa: B027
        """A released request ended, with these realised lengths, and will not come back."""

    def extent_count(self, requests: IntArray) -> int:
        """Physically contiguous runs of slots that `requests` hold together."""
        return len(requests)

    def extents(self, request: int, layer: int, half: int | None) -> Extents:
        """Physical byte runs that hold the request's stored tokens in one layer's K (0), V (1) or
        both (None)."""
        return self.layout.extents(self.units(request), layer, half)

    def report(self) -> dict[str, float]:
        """Figures of this policy alone, for the metrics."""
        return {}

    def _require(self, request: int) -> None:
        if not 0 <= request < len(self.resident) or not self.resident[request]:
            raise KeyError(f"request {request} holds no memory")

    def _admit(self, request: int, reserved: int, tokens: int, samples: int = 1) -> None:
        self.resident[request] = True
        self.width[request] = samples
        self.reserved[request] = reserved
        self.stored[request] = tokens
        self.reserved_total += reserved

    def _dismiss(self, request: int) -> int:
        held = int(self.reserved[request])
        self.resident[request] = False
        self.reserved[request] = self.stored[request] = 0
        self.reserved_total -= held
        return held


class _Away(NamedTuple):
    """A request that is swapped out."""

    demand: Demand
    stored: int


class ContiguousAllocator(Allocator):
    """An allocator whose reservation is one run of slots, `start[request]`; it calls `_occupy` and
    `_vacate`. `_demands`: what each resident asked with."""

    preempts = "itself"

    def __init__(self, layout: KvLayout, requests: int, limits: Limits, options: Any) -> None:
        super().__init__(layout, requests, limits, options)
        self.start = np.full(requests, -1, np.int64)
        self._demands: dict[int, Demand] = {}
        self._away: dict[int, _Away] = {}

    def grow(self, request: int, tokens: int) -> bool:
        self._require(request)
        if self.stored[request] + tokens > self.reserved[request]:
            return False
        self.stored[request] += tokens
        return True

    def units(self, request: int) -> Units:
        self._require(request)
        return Units(
            self.start[request : request + 1].copy(),
            self.stored[request : request + 1].copy(),
            self.reserved[request : request + 1].copy(),
        )

    def swap_out(self, request: int) -> int:
        self._require(request)
        demand, stored = self._demands[request], int(self.stored[request])
        if stored >= demand.prompt:  # the last token that was generated is not stored yet
            generated = (stored - demand.prompt) // demand.samples + 1
            demand = demand._replace(generated=generated)
        self._away[request] = _Away(demand, stored)
        self.release(request)
        return stored

    def swap_in(self, request: int) -> bool:
        away = self._away[request]
        if not self.reserve(request, away.demand, away.stored):
            return False
        del self._away[request]
        return True

    def _occupy(self, request: int, demand: Demand, start: int, slots: int, tokens: int) -> None:
        self.start[request] = start
        self._demands[request] = demand
        self._admit(request, slots, tokens, demand.samples)

    def _vacate(self, request: int) -> int:
        self.start[request] = -1
        del self._demands[request]
        return self._dismiss(request)

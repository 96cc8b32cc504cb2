"""ODMA: contiguous reservations in buckets of predicted length, with a large one for the unsure.

Predicted output L with uncertainty u is inflated to L' = L (1 + gamma u), no further than what may
be generated; the smallest bucket that covers L' is reserved contiguously. Where u > tau, or no
bucket covers L', the reservation is the large one, and so it is after an overflow in mid-decode,
which copies the tokens over. What the paper leaves open is an option marked assumed, and the
defaults are those that serve most among what it says: docs/allocators.md has its words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from policies.allocators.allocator import Demand
from policies.allocators.buckets import Buckets, align_up
from policies.allocators.capabilities import (
    Classifies,
    Learns,
    Migrates,
    Migration,
    Remembers,
    Reports,
)
from policies.allocators.declaration import CHOICES, Range, References
from policies.allocators.losses import MIGRATION, PREDICTION, RESERVING, RUNS
from policies.allocators.odma_options import BucketOptions, OdmaOptions
from policies.allocators.places import Place, SlotSpace, SpaceKind
from policies.allocators.pools import PartitionedPools, Pools, SharedPools
from policies.allocators.reservation import ContiguousAllocator
from policies.allocators.run_holder import RunHolder
from policies.allocators.score import Guess, RequestOutcome, Score
from policies.allocators.sizes import Sizes
from policies.allocators.slabs import BORROW
from policies.predictors.prediction import Predictive, entropy
from policies.requests.requests import IntArray

LARGE_SHARE = 0.25
"""Share of the slots for large reservations where buckets have pools of their own (assumed)."""
CONSTANT = 0.5
"""Uncertainty of everything where it is constant (assumed)."""


class _Wanted(NamedTuple):
    """Where a request should go by its demand and the bounds, whatever the pools are."""

    demand: Demand
    bounds: tuple[int, ...]
    raw: int
    bucket: int
    slots: int
    unsure: bool


class _Decision(NamedTuple):
    """Where a request should go; bucket `buckets` is the large pool."""

    raw: int
    bucket: int
    slots: int


class OdmaSizes(Sizes, Migrates, Classifies, Learns, Reports, Remembers):
    """Reservations of bucket sizes from pools."""

    def __init__(self, runs: RunHolder, own: SlotSpace | None = None) -> None:
        super().__init__(runs)
        options, limits, requests = runs.options, runs.limits, len(runs.resident)
        self._options: BucketOptions = options
        longest = limits.max_tokens if options.bucket_on == "output" else limits.max_model_len
        self.buckets = _buckets(options, longest, options.bounds)
        self._blocks: Buckets | None = None
        if options.space == "partitioned" and options.bucket_on == "output":
            self._blocks = _buckets(options, limits.max_model_len, [])
        self._pools = _pools(runs.layout.slots, options, self._sizes)
        self._refreshes = 0  # that the pools have seen
        self._tags = np.zeros(requests, np.int64)
        self._held = np.zeros(requests, np.int64)  # of all places of this residence
        self._moves = np.zeros(requests, np.int64)
        self._leaving: list[Place] = []
        self._guesses: dict[int, Guess] = {}
        self._wanted: dict[int, _Wanted] = {}  # of each request when it last asked
        self._score = Score()

    @property
    def free(self) -> int:
        return self._pools.free

    @property
    def largest_hole(self) -> int:
        return self._pools.largest_hole

    @property
    def fragmentation(self) -> float:
        return self._pools.fragmentation

    @property
    def reach(self) -> int:
        return self._pools.reach

    @property
    def preempts(self) -> Literal["last", "itself"]:
        return "last" if self._options.large_full == "preempt_last" else "itself"

    @property
    def _sizes(self) -> list[int]:
        """Slots of a block of each pool."""
        return [int(self._of.slots_for(bound)) for bound in (self._blocks or self.buckets).bounds]

    @property
    def bounds(self) -> tuple[int, ...]:
        return self.buckets.bounds

    @property
    def due_s(self) -> float:
        """When a pending refresh takes effect."""
        return self.buckets.due_s

    def needs(self, prompt: IntArray, output: IntArray) -> IntArray:
        """See `Allocator.needs`."""
        limits, options = self._of.limits, self._options
        longest = np.full(len(prompt), limits.max_model_len, np.int64)
        if options.large == "prompt_plus_max_tokens":
            longest = np.minimum(longest, prompt + limits.max_tokens)
        needed: IntArray = self._of.slots_for(-(-longest // options.align) * options.align)
        return needed

    def place(self, request: int, demand: Demand, tokens: int) -> Place | None:
        decision = self._decide(request, demand)
        place = self._place(decision, demand)
        if place is None and self._pools_make_room(decision):
            place = self._place(decision, demand)
        if place is None:
            return None
        self._tags[request] = decision.bucket
        self._held[request] = place.size
        if request not in self._guesses:
            raw, large = self._slots_in(demand, decision.raw), self._options.buckets
            if decision.raw < large:
                raw = self._pools.size(raw) or raw
            sizes = (raw, decision.slots, place.size)
            raw, asked, held = (int(self._of.room_in(each)) for each in sizes)
            self._guesses[request] = Guess(
                self.buckets.bounds, decision.raw, raw, asked, held, decision.bucket == large
            )
        return place

    def give_back(self, place: Place) -> None:
        self._pools.give_back(place)

    def migrate(self, request: int) -> Migration | None:
        of = self._of
        of.require(request)
        if request in of.pinned:
            return None
        old = Place(int(of.start[request]), int(of.reserved[request]))
        new = self._larger(request)
        if new is None:
            return None
        self._leaving.append(old)
        of.overwrite(*new)
        of.start[request] = new.start
        of.reserved[request] = new.size
        of.reserved_total += new.size
        self._held[request] += new.size
        self._tags[request] = self._options.buckets
        self._moves[request] += 1
        return Migration(request, old.start, new.start, int(of.stored[request]), old.size)

    def settle(self) -> None:
        for place in self._leaving:
            self._pools.give_back(place)
            self._of.reserved_total -= place.size
        self._leaving.clear()

    def size(self, request: int, demand: Demand) -> int:
        """See `Contiguous.size`."""
        return self._decide(request, demand).slots

    def tag(self, request: int, demand: Demand) -> int:
        """The bucket of a resident, or the one that another request would have now."""
        if self._of.resident[request]:
            return int(self._tags[request])
        return self._decide(request, demand).bucket

    def share_bounds(self, other: Learns) -> None:
        assert isinstance(other, OdmaSizes)
        self.buckets, self._blocks = other.buckets, other._blocks

    def profile(self, prompt: IntArray, output: IntArray) -> None:
        """Set the first bounds, and the sizes of pools, by these lengths, unless the options say
        otherwise. Only before the first request."""
        if self._options.first_bounds != "profiled" or self._options.bounds:
            return
        total = prompt + output
        self.buckets.begin(output if self._options.bucket_on == "output" else total)
        if self._blocks:
            self._blocks.begin(total)
        self._pools = _pools(self._of.layout.slots, self._options, self._sizes)

    def clock(self, now_s: float) -> None:
        self._score.clock(now_s)
        self.buckets.clock(now_s)
        if self._blocks:
            self._blocks.clock(now_s)
        self._keep_up()

    def finished(self, request: int, prompt: int, output: int) -> None:
        length = output if self._options.bucket_on == "output" else prompt + output
        needed = prompt + output - 1  # the last token's KV is never stored
        whole = self._of.layout.slots_of(prompt + output)
        held, moves = int(self._held[request]), int(self._moves[request])
        outcome = RequestOutcome(length, needed, output, int(whole), held, moves)
        row = self._score.end(self._guesses.pop(request), outcome)
        del self._wanted[request]
        self.buckets.observe(length)
        if self._blocks:
            self._blocks.observe(prompt + output)
        self._keep_up()
        if row:
            self._score.close(self.buckets.bounds)

    def report(self) -> dict[str, Any]:
        """Figures of `Score`; `bucket_refreshes` is a count."""
        return {**self._score.figures(), "bucket_refreshes": self.buckets.refreshes}

    def _keep_up(self) -> None:
        """Resize the pools after the bounds changed, on this card or another."""
        if self._refreshes != self.buckets.refreshes:
            self._refreshes = self.buckets.refreshes
            self._pools.resize(self._sizes)

    def _large(self, demand: Demand) -> int:
        """Slots of a large reservation."""
        longest = self._of.limits.max_model_len
        if self._options.large == "prompt_plus_max_tokens":
            longest = min(longest, demand.prompt + self._of.limits.max_tokens)
        return int(self._of.slots_for(align_up(longest, self._options.align)))

    def _slots_in(self, demand: Demand, bucket: int) -> int:
        """Slots that a request needs in a bucket, or in the large pool where no bucket serves."""
        large = self._large(demand)
        if bucket == self._options.buckets:
            return large
        output = self.buckets.bounds[bucket]
        if self._options.bucket_on == "total":
            output -= demand.prompt
        slots = align_up(demand.prompt + output, self._options.align)
        return min(int(self._of.slots_for(slots)), large)

    def _uncertainty(self, predicted: Predictive, bounds: list[int]) -> float:
        """u of a prediction; `bounds` are those of the output."""
        kind = self._options.uncertainty
        if kind == "spread":
            return predicted.spread
        if kind == "constant":
            return CONSTANT if self._options.constant is None else self._options.constant
        if len(bounds) < 2:
            return 0.0
        nats = entropy(predicted, bounds)
        return nats if kind == "entropy_nats" else nats / math.log(len(bounds))

    def _want(self, demand: Demand) -> _Wanted:
        options = self._options
        before = 0 if options.bucket_on == "output" else demand.prompt
        predicted = demand.prediction
        unsure = self._uncertainty(predicted, [bound - before for bound in self.buckets.bounds])
        most = math.inf
        if options.clip:
            most = min(self._of.limits.max_tokens, self._of.limits.max_model_len - demand.prompt)
        raw = self.buckets.find(before + min(predicted.length, most))
        inflated = predicted.length * (1 + options.gamma * unsure)
        bucket = self.buckets.find(before + min(inflated, most))
        slots = self._slots_in(demand, bucket)
        return _Wanted(demand, self.buckets.bounds, raw, bucket, slots, unsure > options.tau)

    def _decide(self, request: int, demand: Demand) -> _Decision:
        wanted = self._wanted.get(request)
        if wanted is None or wanted.demand is not demand or wanted.bounds != self.buckets.bounds:
            wanted = self._wanted[request] = self._want(demand)
        held, large = self._pools.size(wanted.slots), self._options.buckets
        # a request that already filled its bucket is large, as is one that its pool can never hold
        needed = demand.prompt + demand.generated + 1
        outgrown = demand.generated > 0 and self._of.room_in(held) < needed
        if wanted.unsure or outgrown or not held or wanted.bucket == large:
            return _Decision(wanted.raw, large, self._large(demand))
        return _Decision(wanted.raw, wanted.bucket, held)

    def _place(self, decision: _Decision, demand: Demand) -> Place | None:
        """The place of an admission; None if it has to wait."""
        if decision.bucket == self._options.buckets:
            return self._pools.place_large(decision.slots)
        larger = self._options.bucket_full == "next_larger"
        place = self._pools.place(decision.slots, larger)
        if place is None and larger:
            place = self._pools.place_large(self._large(demand))
        return place

    def _pools_make_room(self, decision: _Decision) -> bool:
        """Compact the arena of an admission; whether it has a place now."""
        arenas = self._pools.arenas(large=decision.bucket == self._options.buckets)
        return any(self._of.make_room(arena, decision.slots) for arena in arenas)

    def _larger(self, request: int) -> Place | None:
        """The larger place of a request that has outgrown its own; None if there is none."""
        demand, large = self._of.demands[request], self._large(self._of.demands[request])
        if large <= self._of.reserved[request]:
            return None
        place = self._pools.place_large(large)
        if place is None and self._options.large_full == "next_larger":
            needed = self._of.slots_for(self._of.stored[request] + 1)
            choices = (self._slots_in(demand, bucket) for bucket in range(self._options.buckets))
            tried = (self._pools.place(slots) for slots in choices if slots >= needed)
            place = next((each for each in tried if each), None)
        return place


def _buckets(options: BucketOptions, longest: int, first: list[int]) -> Buckets:
    if options.first_bounds == "longest":
        first = [longest] * options.buckets
    return Buckets(
        options.buckets, longest, options.window, options.refresh, options.align,
        levels=options.levels, balance=options.balance, first=first, delay_s=options.refresh_delay,
        most=options.refreshes,
    )  # fmt: skip


def _pools(slots: int, options: Any, sizes: Sequence[int]) -> Pools:
    partitioned = options.space == "partitioned"
    share = options.pool_share
    if share is None:
        share = LARGE_SHARE if partitioned else 0.0
    kept = int(slots * share) // options.align * options.align
    if partitioned:
        return PartitionedPools(
            slots, kept, sizes, split=options.pool_split or "slots",
            repartition=options.repartition or "on_refresh", align=options.align, fit=options.fit,
            overflow=options.pool_overflow,
        )  # fmt: skip
    ordinary = (slots - kept) // options.align * options.align
    kind: SpaceKind = "slabs" if options.space == "slabs" else "arena"
    return SharedPools(
        ordinary, slots - ordinary if kept else 0, options.fit, kind, options.borrow or BORROW,
        overflow=options.pool_overflow,
    )  # fmt: skip


def size(runs: ContiguousAllocator, request: int, demand: Demand) -> int:
    """See `Contiguous.size`."""
    return cast(OdmaSizes, runs.sizes).size(request, demand)


def needs(runs: ContiguousAllocator, prompt: IntArray, output: IntArray) -> IntArray:
    """See `Allocator.needs`."""
    return cast(OdmaSizes, runs.sizes).needs(prompt, output)


class OdmaAllocator(ContiguousAllocator):
    """Reservations of bucket sizes from pools."""

    Options = OdmaOptions
    Sizes = OdmaSizes
    members = (*ContiguousAllocator.members, OdmaSizes)
    reading = (
        "B = 4, gamma = 0.2, tau = 0.8 (arXiv 2512.09427); where that is open, what serves "
        "most: L' clipped to what may be generated, profiled bounds, slabs cut on demand from "
        "one space, borrowing"
    )
    published = {"buckets": 4, "levels": [], "balance": "requests", "gamma": 0.2, "tau": 0.8}
    """arXiv 2512.09427; levels of i/B, which it does not give, as in the sweep `odma-paper`. Its
    window of 10,000 and refresh of 1,000 lengths are left out: they have to be full before
    anything is counted."""
    losses = {**RESERVING, "copies": MIGRATION, "prediction": PREDICTION}
    searched = {
        **RUNS, "buckets": Range(1, 64), "levels": Range(1, 64), "balance": CHOICES,
        "gamma": Range(0, 10), "clip": CHOICES, "tau": Range(0, 10), "uncertainty": CHOICES,
        "constant": Range(0, 10), "window": Range(1, 1 << 20), "refresh": Range(0, 1 << 20),
        "refreshes": Range(1, 1 << 20), "refresh_delay": Range(0, 3600), "first_bounds": CHOICES,
        "align": Range(1, 4096), "bucket_on": CHOICES, "large": CHOICES, "borrow": Range(1, 64),
        "pool_share": Range(0, 1), "pool_overflow": CHOICES, "pool_split": CHOICES,
        "repartition": CHOICES, "bucket_full": CHOICES, "large_full": CHOICES,
    }  # fmt: skip
    references = References(("static", "paged"), ceilings=("oracle", "ideal"))
    size, needs = size, needs

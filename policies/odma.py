"""ODMA: contiguous reservations in buckets of predicted length, with a pool for the large ones.

Predicted output L with uncertainty u is inflated to L' = L (1 + gamma u); the smallest bucket that
covers L' is reserved contiguously. Where u > tau, or no bucket covers L', the reservation is the
large one, and so it is after an overflow in mid-decode, which copies the tokens over. What the
paper leaves open is an option marked assumed. When there is no room, admission waits at the head of
the line, and a request that must move is preempted by recompute (assumed).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from policies.allocator import ContiguousAllocator, Demand, Limits, Migration, PolicyOptions
from policies.arena import Arena, Fit
from policies.buckets import Buckets, align_up
from policies.kv_layout import KvLayout
from policies.requests import IntArray

Count = Annotated[int, Field(ge=1)]


class OdmaOptions(PolicyOptions):
    """Options of `odma`; the paper's values where it gives one."""

    name: Literal["odma"] = "odma"
    buckets: Annotated[int, Field(ge=1, le=64)] = 4
    gamma: Annotated[float, Field(ge=0)] = 0.2
    """Inflation of the predicted length for each unit of uncertainty."""
    tau: Annotated[float, Field(ge=0)] = 0.8
    """Uncertainty above which a request goes to the large pool."""
    window: Count = 10_000
    """Realised lengths the bounds are quantiles of."""
    refresh: Count = 1_000
    """Realised lengths between two settings of the bounds."""
    align: Count = 64
    """Bounds and reservations are multiples of this many tokens (assumed)."""
    bucket_on: Literal["output", "total"] = "output"
    """What a bound bounds: output tokens, or prompt + output (assumed)."""
    large: Literal["prompt_plus_max_tokens", "max_model_len"] = "prompt_plus_max_tokens"
    """Size of a large reservation (assumed)."""
    pool: Literal["arena", "partitioned"] = "arena"
    """One space for all buckets, or a region of its own for each, cut evenly (assumed)."""
    pool_share: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Share of the slots kept for large reservations (assumed). None: they share the arena, or
    have 0.25 when partitioned."""
    fit: Fit = "first"
    """Which hole a reservation takes (assumed)."""


class _Admission(NamedTuple):
    """What was decided when a request was first admitted, to be judged when it ends."""

    bounds: tuple[int, ...]
    predicted: int
    raw_slots: int
    slots: int


class OdmaAllocator(ContiguousAllocator):
    """Buckets in arenas: `_regions[i]` serves bucket i, `_regions[-1]` the large reservations."""

    Options = OdmaOptions
    options: OdmaOptions

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: OdmaOptions
    ) -> None:
        super().__init__(layout, requests, limits, options)
        longest = limits.max_tokens if options.bucket_on == "output" else limits.max_model_len
        self.buckets = Buckets(
            options.buckets, longest, options.window, options.refresh, options.align
        )
        self._regions = _regions(layout.slots, options)
        self._arenas = list(dict.fromkeys(self._regions))
        self._home: dict[int, Arena] = {}
        self._large_slots = np.zeros(requests, np.int64)
        self._leaving: list[tuple[Arena, int, int]] = []
        self._admissions: dict[int, _Admission] = {}
        self._counts = dict.fromkeys(("ended", "exact", "raw", "final", "large", "moved"), 0)

    @property
    def free_slots(self) -> int:
        return sum(arena.free for arena in self._arenas)

    @property
    def largest_hole(self) -> int:
        return max(arena.largest_hole for arena in self._arenas)

    @property
    def reach(self) -> int:
        return self._regions[-1].size

    def needs(self, prompt: IntArray, output: IntArray) -> IntArray:
        return np.array([self._large(int(tokens)) for tokens in prompt], np.int64)

    def reserve(self, request: int, demand: Demand, tokens: int) -> bool:
        if self.resident[request]:
            raise ValueError(f"request {request} already holds memory")
        bucket, admission = self._decide(demand)
        arena = self._regions[bucket]
        start = arena.take(admission.slots)
        if start is None:
            return False
        self._home[request] = arena
        self.start[request] = start
        self._large_slots[request] = self._large(demand.prompt)
        self._admit(request, admission.slots, tokens)
        if request not in self._admissions:
            self._counts["large"] += bucket == self.options.buckets
        self._admissions.setdefault(request, admission)
        return True

    def migrate(self, request: int) -> Migration | None:
        self._require(request)
        old, size = int(self.start[request]), int(self.reserved[request])
        large = int(self._large_slots[request])
        new = self._regions[-1].take(large) if large > size else None
        if new is None:
            return None
        self._leaving.append((self._home[request], old, size))
        self._home[request] = self._regions[-1]
        self.start[request] = new
        self.reserved[request] = large
        self.reserved_total += large
        self._counts["moved"] += 1
        return Migration(request, old, new, int(self.stored[request]), size)

    def settle(self) -> None:
        for arena, start, size in self._leaving:
            arena.give_back(start, size)
            self.reserved_total -= size
        self._leaving.clear()

    def release(self, request: int) -> int:
        self._require(request)
        self._home.pop(request).give_back(int(self.start[request]), int(self.reserved[request]))
        self.start[request] = -1
        return self._dismiss(request)

    def finished(self, request: int, prompt: int, output: int) -> None:
        admission = self._admissions.pop(request)
        needed = prompt + output - 1  # the last token's KV is never stored
        length = output if self.options.bucket_on == "output" else prompt + output
        true = bisect_left(admission.bounds, length)
        self._counts["ended"] += 1
        self._counts["exact"] += true == admission.predicted
        self._counts["raw"] += admission.raw_slots >= needed
        self._counts["final"] += admission.slots >= needed
        self.buckets.observe(length)

    def report(self) -> dict[str, float]:
        """Shares of the requests that ended; `migrations` and `bucket_refreshes` are counts."""
        ended = max(self._counts["ended"], 1)
        return {
            "bucket_accuracy": self._counts["exact"] / ended,
            "coverage_raw": self._counts["raw"] / ended,
            "coverage_final": self._counts["final"] / ended,
            "large_share": self._counts["large"] / ended,
            "migration_rate": self._counts["moved"] / ended,
            "bucket_refreshes": self.buckets.refreshes,
        }

    def _large(self, prompt: int) -> int:
        """Slots of a large reservation."""
        longest = self.limits.max_model_len
        if self.options.large == "prompt_plus_max_tokens":
            longest = min(longest, prompt + self.limits.max_tokens)
        return align_up(longest, self.options.align)

    def _slots(self, prompt: int, bucket: int) -> int:
        """Slots of a reservation in a bucket, or of a large one where no bucket serves."""
        if bucket == self.options.buckets:
            return self._large(prompt)
        bound = self.buckets.bounds[bucket]
        if self.options.bucket_on == "output":
            bound = align_up(prompt + bound, self.options.align)
        return min(bound, self._large(prompt))

    def _decide(self, demand: Demand) -> tuple[int, _Admission]:
        """The bucket (the number of buckets stands for the large pool) and what it means."""
        options, bounds = self.options, self.buckets.bounds
        before = 0 if options.bucket_on == "output" else demand.prompt
        predicted = demand.prediction
        unsure = predicted.uncertainty([bound - before for bound in bounds])
        raw = self.buckets.find(before + predicted.length)
        bucket = self.buckets.find(before + predicted.length * (1 + options.gamma * unsure))
        slots = self._slots(demand.prompt, bucket)
        # a request that already filled its bucket is large, as is one that its region can never
        # hold
        outgrown = demand.generated > 0 and slots < demand.prompt + demand.generated + 1
        if unsure > options.tau or outgrown or slots > self._regions[bucket].size:
            bucket = options.buckets
            slots = self._slots(demand.prompt, bucket)
        return bucket, _Admission(bounds, raw, self._slots(demand.prompt, raw), slots)


def _regions(slots: int, options: OdmaOptions) -> list[Arena]:
    """The arena of each bucket, and of the large reservations at the end."""
    partitioned = options.pool == "partitioned"
    share = options.pool_share
    if share is None:
        share = 0.25 if partitioned else 0.0
    kept = int(slots * share) // options.align * options.align
    parts = options.buckets if partitioned else 1
    each = (slots - kept) // parts // options.align * options.align
    arenas = [Arena(i * each, each, options.fit) for i in range(parts)]
    ordinary = arenas if partitioned else arenas * options.buckets
    end = parts * each
    large = Arena(end, slots - end, options.fit) if kept else ordinary[-1]
    return [*ordinary, large]

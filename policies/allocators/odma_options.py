"""Options of `odma`: what the paper says, and what it leaves open."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field

from hwmodel.description.description import Strict, checked
from policies.allocators.allocator import PolicyOptions
from policies.allocators.buckets import Balance, Buckets
from policies.allocators.compaction import ArenaOptions
from policies.allocators.pools import Repartition, Split
from policies.requests.requests import IntArray

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, le=1)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class BucketOptions(Strict):
    """Those that `odma` and `odma-best` have, with the values of the paper where it gives one."""

    renamed = {"pool": "space"}
    buckets: Annotated[int, Field(ge=1, le=64)] = 4
    """How many bounds there are (the paper: 4)."""
    levels: list[Share] = []
    """The quantile that each bound is, strictly increasing. Empty: by `balance`."""
    balance: Balance = "residents"
    """What buckets have equally much of: requests, which is levels of i / buckets, or requests in
    memory at a time, or slots in use at a time; or the exact bounds that leave the least unused for
    the lengths of the window (assumed; see `Buckets`)."""
    gamma: NonNegative = 0.2
    """Inflation of the predicted length for each unit of uncertainty."""
    clip: bool = True
    """Whether L and L' go no further than what may be generated (assumed)."""
    tau: Annotated[float, Field(ge=0)] = 0.8
    """Uncertainty above which a request goes to the large pool."""
    uncertainty: Literal["entropy", "entropy_nats", "spread", "constant"] = "entropy"
    """What u is: the entropy of the predictive distribution over the current buckets, over ln of
    their number or as it is; its standard deviation of ln(length); or the same for all."""
    constant: NonNegative | None = None
    """u where it is constant. None: 0.5 (assumed)."""
    window: Count = 10_000
    """Realised lengths the bounds are quantiles of."""
    refresh: Annotated[int, Field(ge=0)] = 1_000
    """Realised lengths between two settings of the bounds; 0: never."""
    refreshes: Count | None = None
    """How often bounds are set at most; 1: once, and frozen then. None: no limit."""
    refresh_delay: NonNegative = 0.0
    """Seconds from the length that sets off a refresh to the new bounds (assumed)."""
    first_bounds: Literal["profiled", "even", "longest"] = "profiled"
    """Bounds before the first refresh: the levels' quantiles of lengths profiled earlier (even
    where there are none), or parting the longest length evenly, or all at it (assumed)."""
    bounds: list[Count] = []
    """Bounds before the first refresh, ascending, instead of `first_bounds`."""
    align: Count = 64
    """Bounds and reservations are multiples of this many tokens (assumed)."""
    bucket_on: Literal["output", "total"] = "output"
    """What a bound bounds: output tokens, or prompt + output (assumed)."""
    large: Literal["prompt_plus_max_tokens", "max_model_len"] = "prompt_plus_max_tokens"
    """Size of a large reservation (assumed)."""
    space: Literal["slabs", "arena", "partitioned"] = "slabs"
    """Slabs of equal blocks cut on demand out of one space, with a free list a size; one arena with
    holes of any size; or a pool of equal blocks for each bucket. Those blocks have the buckets'
    quantiles of prompt + output, and a reservation the smallest that covers it (assumed)."""
    borrow: Annotated[float, Field(ge=1)] | None = None
    """A free block serves a smaller bucket where it has at most this many times the slots (1:
    none does). None: 2, with slabs (assumed)."""
    pool_share: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Share of the slots kept for large reservations (assumed). None: they share the space, or
    have 0.25 when partitioned."""
    pool_overflow: bool = False
    """Whether a large reservation for which the pool has no room lies where buckets lie: in their
    common space, which also takes one that is larger than the pool, or when partitioned in a free
    block that covers it. Else it waits (assumed)."""
    pool_split: Split | None = None
    """What pools have equally much of at first. None: slots (assumed)."""
    repartition: Repartition | None = None
    """When a pool is cut into blocks of its new size: when all of it is free, or what is free of it
    at once and the rest as it comes free. None: on_refresh (assumed)."""
    bucket_full: Literal["wait", "next_larger"] = "wait"
    """What to do when the bucket of an admission has no room: wait at the head of the line, or take
    a larger block or the large reservation (assumed)."""
    large_full: Literal["preempt", "preempt_last", "next_larger"] = "preempt"
    """What to do when a request has outgrown its place and there is no room for a large one:
    preempt it, or preempt the last running one, or move it to the next larger bucket that has room
    and preempt it if none has (assumed)."""

    @property
    def learned_lengths(self) -> dict[str, int]:
        return {"window": self.window, "refresh": self.refresh}

    def bounds_for(self, lengths: IntArray) -> tuple[int, ...]:
        buckets = Buckets(
            self.buckets,
            int(lengths.max()),
            align=self.align,
            levels=self.levels,
            balance=self.balance,
        )
        buckets.begin(lengths)
        return buckets.bounds

    @property
    def of_spaces(self) -> frozenset[str]:
        """See `ArenaOptions.of_spaces`; bounds that are given are the first ones."""
        own = {"borrow", "pool_split", "pool_share", "pool_overflow", "repartition"}
        first = {"first_bounds"} if self.bounds else set()
        return frozenset({"space", "compaction", "compaction_tokens", *own, *first})

    @checked
    def _buckets_are_consistent(self) -> None:
        for name, given in (("levels", self.levels), ("bounds", self.bounds)):
            if given and len(given) != self.buckets:
                raise ValueError(f"{name}: expected {self.buckets}, one a bucket; got {len(given)}")
            if any(after <= before for before, after in pairwise(given)):
                raise ValueError(f"{name}: expected strictly increasing numbers")
        if self.bounds and "first_bounds" in self.model_fields_set:
            raise ValueError("first_bounds: bounds are given already")
        if self.constant is not None and self.uncertainty != "constant":
            raise ValueError("constant belongs to uncertainty: constant")

    @checked
    def _pools_are_consistent(self) -> None:
        if self.space != "slabs" and self.borrow is not None:
            raise ValueError("borrow belongs to space: slabs")
        if self.space != "arena" and getattr(self, "compaction", "none") != "none":
            raise ValueError("compaction: blocks do not move; only with space: arena")
        if self.space == "partitioned":
            if self.pool_share == 0:
                raise ValueError("pool_share: partitioned pools keep a share for large ones")
        elif self.pool_split or self.repartition:
            raise ValueError("pool_split and repartition belong to space: partitioned")


class OdmaOptions(BucketOptions, ArenaOptions, PolicyOptions):
    """Options of `odma`."""

    name: Literal["odma"] = "odma"

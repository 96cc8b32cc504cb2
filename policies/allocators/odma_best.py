"""ODMA as one would build it for throughput alone: what the paper leaves open, and its numbers, set
to what serves the most.

A control beside `odma`, so that an answer over contiguous memory does not hang on the paper's
numbers. The predictor is no part of it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from policies.allocators.allocator import PolicyOptions
from policies.allocators.buckets import Balance
from policies.allocators.compaction import ArenaOptions
from policies.allocators.declaration import References
from policies.allocators.odma import OdmaAllocator, OdmaSizes, needs, size
from policies.allocators.odma_options import BucketOptions, NonNegative
from policies.allocators.reservation import ContiguousAllocator


class OdmaBestOptions(BucketOptions, ArenaOptions, PolicyOptions):
    """Options of `odma` with other defaults: of some forty combinations, those that served the most
    on five devices together (docs/allocators.md)."""

    name: Literal["odma-best"] = "odma-best"
    variant_of = "odma"
    buckets: Annotated[int, Field(ge=1, le=64)] = 32
    balance: Balance = "least_unused"
    bucket_on: Literal["output", "total"] = "total"
    """A bound of prompt + output rounds once, not the output alone."""
    gamma: NonNegative = 0.0
    """A request that outgrows its place moves, which costs less than what inflation reserves."""
    tau: Annotated[float, Field(ge=0)] = 1.0
    """The entropy is no larger: none is large for its uncertainty, however many buckets."""
    space: Literal["slabs", "arena", "partitioned"] = "arena"
    compaction: Literal["none", "copied", "free"] = "copied"
    """Holes between runs are what costs `odma` the most; the copies are charged."""
    large_full: Literal["preempt", "preempt_last", "next_larger"] = "next_larger"


class OdmaBestAllocator(ContiguousAllocator):
    """`odma` with the defaults of `OdmaBestOptions`."""

    Options = OdmaBestOptions
    Sizes = OdmaSizes
    members = OdmaAllocator.members
    reading = (
        "odma with what serves most: compaction whose copies are charged, 32 exact buckets of "
        "prompt + output, no inflation (docs/allocators.md)"
    )
    published = {}  # nobody's
    losses = OdmaAllocator.losses
    searched = OdmaAllocator.searched
    references = References(("static", "odma", "paged"), ceilings=("ideal",))
    """An oracle with holes is no ceiling of a policy that joins them."""
    size, needs = size, needs

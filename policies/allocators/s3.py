"""S3: contiguous reservations in fixed classes of predicted output length (Jin et al. 2023).

A classifier names one of ten classes of equal width; the class's bound is reserved behind the
prompt. A request that outgrows it is preempted, and is computed again in a larger
reservation. Classes are set once, from an offline histogram of lengths, and not adapted.

Here the class is that of the predictor's median (S3 trains a classifier of its own). Assumed, for
the paper leaves it open: a prediction above the last bound reserves the worst case; the larger
reservation is the next class unless `outgrown` says otherwise; and what the histogram is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from hwmodel.description.description import checked
from policies.allocators.allocator import Demand, PolicyOptions
from policies.allocators.buckets import uniform_bounds
from policies.allocators.capabilities import Classifies, Remembers, Reports
from policies.allocators.compaction import ArenaOptions, RunOptions
from policies.allocators.declaration import CHOICES, Range, References
from policies.allocators.losses import PREDICTION, RESERVING, RUNS
from policies.allocators.places import Place, SlotSpace
from policies.allocators.reservation import ContiguousAllocator
from policies.allocators.run_holder import RunHolder
from policies.allocators.sizes import OneSpace
from policies.requests.requests import IntArray

Count = Annotated[int, Field(ge=1)]


class S3Options(RunOptions, ArenaOptions, PolicyOptions):
    """Options of `s3`. The histogram is `lengths`, or else the first `profile` lengths, or else
    nothing but the longest output is known."""

    name: Literal["s3"] = "s3"
    buckets: Annotated[int, Field(ge=1, le=64)] = 10
    """Classes of output length (the paper's ten)."""
    bounds: Literal["uniform", "quantiles"] = "uniform"
    """Classes of equal width up to the longest length of the histogram, as in the paper, or with
    equal shares of it."""
    lengths: list[Count] = []
    """Output lengths of an earlier sample, or its quantiles at equal distances, in tokens."""
    profile: Annotated[int, Field(ge=0)] = 0
    """Use this many realised lengths as the earlier sample. Until then classes divide `max_tokens`
    evenly. For a fair comparison at most the warm-up."""
    outgrown: Literal["next", "double"] = "next"
    """What is reserved after a misprediction: the next class, or twice as much."""

    @property
    def learned_lengths(self) -> dict[str, int]:
        return {"profile": self.profile}

    @checked
    def _one_histogram(self) -> None:
        if self.lengths and self.profile:
            raise ValueError("profile: lengths are given already")


class _Admission(NamedTuple):
    """What was decided when a request was first admitted, to be judged when it ends."""

    bounds: tuple[int, ...]
    predicted: int
    room: int
    """Tokens that its reservation had room for."""


class S3Sizes(OneSpace, Classifies, Remembers, Reports):
    """Classes of output length."""

    def __init__(self, runs: RunHolder, own: SlotSpace | None = None) -> None:
        super().__init__(runs, own)
        options, limits = runs.options, runs.limits
        self._options: S3Options = options
        self._bounds = uniform_bounds(limits.max_tokens, options.buckets)
        if options.lengths:
            self._bounds = class_bounds(options, options.lengths)
        self._profile: list[int] = []
        self._room = np.zeros(len(runs.resident), np.int64)
        """Output tokens that the last reservation of each request had room for; 0: never yet."""
        self._admissions: dict[int, _Admission] = {}
        self._counts = dict.fromkeys(("ended", "exact", "covered", "again"), 0)

    @property
    def bounds(self) -> tuple[int, ...]:
        """Longest output of each class, ascending, in tokens."""
        return self._bounds

    def place(self, request: int, demand: Demand, tokens: int) -> Place | None:
        place = super().place(request, demand, tokens)
        if place is None:
            return None
        room = self.output_room(request, demand)
        self._counts["again"] += 0 < self._room[request] < room
        self._room[request] = room
        if request not in self._admissions:
            held = int(self._of.room_in(place.size))
            self._admissions[request] = _Admission(self._bounds, self._class(demand), held)
        return place

    def tag(self, request: int, demand: Demand) -> int:
        return self._class(demand)

    def finished(self, request: int, prompt: int, output: int) -> None:
        admission = self._admissions.pop(request)
        needed = prompt + output - 1
        self._room[request] = 0
        self._counts["ended"] += 1
        self._counts["exact"] += bisect_left(admission.bounds, output) == admission.predicted
        self._counts["covered"] += admission.room >= needed
        if len(self._profile) < self._options.profile:
            self._profile.append(output)
            if len(self._profile) == self._options.profile:
                self._bounds = class_bounds(self._options, self._profile)

    def report(self) -> dict[str, float]:
        """Shares of the requests that ended; `reservations_again` is how often one was too small,
        a request."""
        ended = max(self._counts["ended"], 1)
        covered = self._counts["covered"] / ended
        return {
            "bucket_accuracy": self._counts["exact"] / ended,
            "coverage_raw": covered,
            "coverage_final": covered,
            "migration_rate": 1 - covered if self._counts["ended"] else 0.0,
            "reservations_again": self._counts["again"] / ended,
        }

    def _class(self, demand: Demand) -> int:
        """The predicted class; the number of classes where the last bound does not cover it."""
        return bisect_left(self._bounds, demand.prediction.length)

    def output_room(self, request: int, demand: Demand) -> int:
        """Output tokens of each sample to reserve for."""
        longest = min(self._of.limits.max_tokens, self._of.limits.max_model_len - demand.prompt)
        # one that has made tokens on another card comes here for the first time
        room = int(self._room[request]) or self._bound(self._class(demand))
        while room < min(demand.generated, longest):
            double = self._options.outgrown == "double"
            room = 2 * room if double else self._bound(bisect_left(self._bounds, room + 1))
        return min(room, longest)

    def _bound(self, index: int) -> int:
        return self._bounds[index] if index < len(self._bounds) else self._of.limits.max_tokens


def class_bounds(options: S3Options, lengths: Sequence[int]) -> tuple[int, ...]:
    """Longest output of each class, in tokens, for a sample of lengths."""
    if options.bounds == "uniform":
        return uniform_bounds(max(lengths), options.buckets)
    shares = np.arange(1, options.buckets + 1) / options.buckets
    bounds = np.quantile(lengths, shares, method="inverted_cdf")
    return tuple(int(bound) for bound in bounds)


class S3Allocator(ContiguousAllocator):
    """Classes of output length over one arena."""

    Options = S3Options
    Sizes = S3Sizes
    members = (*ContiguousAllocator.members, S3Sizes)
    reading = (
        "ten equal classes of output length (Jin et al. 2023); the paper's batches by "
        "decreasing first fit are the engine's (packing: decreasing_first_fit) and off by "
        "default"
    )
    losses = {**RESERVING, "prediction": PREDICTION}
    searched = {
        **RUNS,
        "buckets": Range(1, 64),
        "bounds": CHOICES,
        "profile": Range(0, 1 << 20),
        "outgrown": CHOICES,
    }
    references = References(("static", "paged"), ceilings=("oracle", "ideal"))
    sizes: S3Sizes

    def needs(self, prompt: IntArray, output: IntArray) -> IntArray:
        longest = np.minimum(self.limits.max_tokens, self.limits.max_model_len - prompt)
        needed: IntArray = self.slots_for(prompt + longest)
        return needed

    def size(self, request: int, demand: Demand) -> int:
        room = self.sizes.output_room(request, demand)
        return int(self.slots_for(demand.prompt + room))

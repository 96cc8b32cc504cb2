"""What predicting costs: a server that takes requests in micro-batches before they are scheduled.

When it is free it takes all that wait, up to `max_batch`; with `linger` it waits that long for more
unless the batch is full. A request arrives at the scheduler when its batch is done, so that its
time to the first token holds the prediction's. The more requests there are, the larger are the
batches, and the less of the predictor's time each of them takes, forming of the batch included.

One predictor serves all cards of a node. Where it lives on the cards, each keeps `on_card` bytes
for it; that it also takes compute and bandwidth there is not modelled.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field

from hwmodel.description.description import Strict, checked
from hwmodel.description.units import Bytes, Nanoseconds
from policies.requests.percentiles import summary
from policies.requests.requests import FloatArray

Count = Annotated[int, Field(ge=1)]


class InferenceSpec(Strict):
    """Time and room that a predictor takes."""

    sizes: list[Count] = []
    """Sizes of micro-batches that `times` is for, ascending from 1; linear in between. Empty: as
    the predictor's own file says (`timed`)."""
    times: list[Nanoseconds] = []
    """How long each of them takes."""
    max_batch: Count | None = None
    """Requests in a micro-batch at most. None: the last of the sizes."""
    linger: Nanoseconds = 0.0
    """How long a batch that is not full waits for more."""
    on_card: Bytes = 0
    """Memory of each card that is kept for it."""

    @checked
    def _table_is_whole(self) -> None:
        if len(self.sizes) != len(self.times):
            raise ValueError(f"times: expected {len(self.sizes)}, one a size")
        if self.sizes and self.sizes[0] != 1:
            raise ValueError("sizes: expected 1 for the first")
        if any(after <= before for before, after in pairwise(self.sizes)):
            raise ValueError("sizes: expected strictly increasing numbers")
        if self.sizes and (self.max_batch or 1) > self.sizes[-1]:
            raise ValueError(f"max_batch: the largest of the sizes is {self.sizes[-1]}")

    def batch_s(self, size: int) -> float:
        """Seconds of a micro-batch."""
        return float(np.interp(size, self.sizes, self.times)) * 1e-9


class Inference(NamedTuple):
    """When predictions are done. ready_s: float64 (n,), non-decreasing. own_s: float64 (n,), the
    predictor's time that each took: its batch's, forming included, over the batch's size. size:
    float64 (n,), requests in its batch."""

    ready_s: FloatArray
    own_s: FloatArray
    size: FloatArray

    def figures(self, arrival_s: FloatArray, warmup: int) -> dict[str, Any]:
        """Of the requests after the warm-up: seconds of the predictor a request, mean size of the
        batch it was in, and by how much its first token comes later."""
        return {
            "s_per_request": float(self.own_s[warmup:].mean()),
            "batch": float(self.size[warmup:].mean()),
            "added_ttft_s": summary((self.ready_s - arrival_s)[warmup:]),
        }


def infer(spec: InferenceSpec, arrival_s: FloatArray) -> Inference:
    """Predict for requests that arrive then, in order; float64 (n,), non-decreasing."""
    count, most = len(arrival_s), spec.max_batch or spec.sizes[-1]
    times = Inference(np.empty(count), np.empty(count), np.empty(count))
    first, free_s = 0, 0.0
    while first < count:
        open_s = max(free_s, float(arrival_s[first]))
        start_s = open_s + spec.linger * 1e-9
        if first + most <= count:
            start_s = min(start_s, max(open_s, float(arrival_s[first + most - 1])))
        last = min(int(np.searchsorted(arrival_s, start_s, side="right")), first + most)
        size = last - first
        free_s = start_s + spec.batch_s(size)
        times.ready_s[first:last] = free_s
        times.own_s[first:last] = (free_s - open_s) / size
        times.size[first:last] = size
        first = last
    return times

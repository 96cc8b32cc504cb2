"""Predictive distributions of an output length, and their entropy over classes."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol

import numpy as np

from policies.requests.requests import FloatArray, IntArray


class Predictive(Protocol):
    """What an allocator may ask of a prediction, whatever its law is."""

    @property
    def length(self) -> float:
        """The point prediction, in output tokens."""

    @property
    def spread(self) -> float:
        """How far off it may be: standard deviation of ln(true / predicted)."""

    def below(self, bound: float) -> float:
        """Probability that the output has at most `bound` tokens."""


class Prediction(NamedTuple):
    """A predictive distribution: lognormal with median `length` tokens; a point when sigma is 0."""

    length: float
    sigma: float = 0.0

    @property
    def spread(self) -> float:
        return self.sigma

    def below(self, bound: float) -> float:
        """Probability that the output has at most `bound` tokens."""
        if self.sigma == 0:
            return 1.0 if bound >= self.length else 0.0
        if bound <= 0:
            return 0.0
        score = math.log(bound / self.length) / self.sigma
        return 0.5 * math.erfc(-score / math.sqrt(2))


class BinnedPrediction:
    """A predictive distribution over bins: `shares[i]` of it is in (edges[i], edges[i + 1]] tokens,
    evenly in the logarithm; all of it at the edge where a bin is empty. The length is its median.

    edges: ascending, above 0, one more than shares, which need not be scaled to a sum of 1.
    """

    def __init__(self, edges: Sequence[float], shares: Sequence[float]) -> None:
        total = math.fsum(shares)
        self._edges = [float(edge) for edge in edges]
        self._logs = [math.log(edge) for edge in self._edges]
        self._shares = [share / total for share in shares]
        self._below = [0.0, *accumulate(self._shares)]
        self.length = self._median()
        self.spread = self._spread()

    def below(self, bound: float) -> float:
        """Probability that the output has at most `bound` tokens."""
        place = bisect_right(self._edges, bound) - 1
        if place < 0:
            return 0.0
        if place == len(self._shares):
            return 1.0
        low, high = self._logs[place], self._logs[place + 1]
        part = (math.log(bound) - low) / (high - low)
        return self._below[place] + part * self._shares[place]

    def _median(self) -> float:
        """Where half of it is below: the least such length."""
        place = bisect_left(self._below, 0.5) - 1
        part = (0.5 - self._below[place]) / self._shares[place]
        low, high = self._logs[place], self._logs[place + 1]
        return math.exp(low + part * (high - low))

    def _spread(self) -> float:
        """Root of the mean square of ln(length / median)."""
        middle = math.log(self.length)
        square = 0.0
        for share, (low, high) in zip(self._shares, pairwise(self._logs), strict=True):
            a, b = low - middle, high - middle
            square += share * (a * a + a * b + b * b) / 3
        return math.sqrt(square)


class Predictions(Protocol):
    """The predictions of `n` requests. `length`: float64 (n,), the point predictions in tokens."""

    length: FloatArray

    def __getitem__(self, request: int) -> Predictive:
        """The prediction of one request."""


class LognormalPredictions:
    """Medians `length`, float64 (n,), and one `sigma` for all; see `Prediction`."""

    def __init__(self, length: FloatArray, sigma: float = 0.0) -> None:
        self.length = length
        self._sigma = sigma

    def __getitem__(self, request: int) -> Prediction:
        return Prediction(float(self.length[request]), self._sigma)


class ClassPredictions:
    """Each request has one of a few laws: that of its class, int64 (n,)."""

    def __init__(self, laws: Sequence[Predictive], classes: IntArray) -> None:
        self.length: FloatArray = np.array([law.length for law in laws])[classes]
        self.classes = classes
        self._laws = laws

    def __getitem__(self, request: int) -> Predictive:
        return self._laws[self.classes[request]]


class RepeatedPredictions:
    """Of each request that of `rows`, int64 (n,), in `whole`: samples of a prompt have the same."""

    def __init__(self, whole: Predictions, rows: IntArray) -> None:
        self.length: FloatArray = whole.length[rows]
        self._whole, self._rows = whole, rows

    def __getitem__(self, request: int) -> Predictive:
        return self._whole[int(self._rows[request])]


def entropy(prediction: Predictive, bounds: Sequence[float]) -> float:
    """Entropy of a prediction over the classes that `bounds` (ascending, output tokens) part, nats.

    -sum p ln p over len(bounds) classes; the last takes all that is left. From 0 to ln(classes).
    """
    edges = [0.0, *(prediction.below(bound) for bound in bounds[:-1]), 1.0]
    shares = [b - a for a, b in pairwise(edges)]
    return -sum(p * math.log(p) for p in shares if p > 0)

"""Lengths and prediction errors under which two published figures of a baseline come out.

Static reservation of `limit` tokens uses a share of them that depends on lengths alone, and the
accuracy of S3's ten equal classes on lengths and prediction errors alone: neither on the order in
which requests are served. So a scale of the lengths and a spread of the errors follow from the two
figures by bisection, without serving anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from hwmodel.description.description import DescriptionError, Strict, checked
from policies.allocators.buckets import uniform_bounds
from policies.predictors.predictor import PredictorSpec, predict
from policies.predictors.predictors import PREDICTORS
from policies.requests.length_table import QUANTILES
from policies.requests.requests import FloatArray, IntArray

STEPS = 40
"""Halvings of an interval of scales or spreads."""
SCALES = (1e-3, 1e4)
SPREADS = (1e-4, 3.0)
TOLERANCE = 0.002
"""A target is reached within this (a share)."""
S3_CLASSES = 10
"""Classes of output length in S3 (Jin et al. 2023)."""
_NORMAL = NormalDist()


class TokenLaw(Strict):
    """A law of lengths: tokens at 14 levels from 0 to 1, log-linear in between, or lognormal around
    1 with a spread of the logarithm."""

    quantiles: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=2)] | None = None
    """Tokens at the levels 0, 0.02, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.85, 0.9, 0.95, 0.98, 0.995
    and 1."""
    sigma: Annotated[float, Field(gt=0, le=5)] | None = None
    """Of a lognormal, instead."""
    source: str | None = None

    @checked
    def _one_law(self) -> None:
        if (self.quantiles is None) == (self.sigma is None):
            raise ValueError("expected quantiles or sigma")
        if self.quantiles is not None:
            if len(self.quantiles) != len(QUANTILES):
                raise ValueError(f"quantiles: expected {len(QUANTILES)}, at {QUANTILES}")
            if sorted(self.quantiles) != self.quantiles:
                raise ValueError("quantiles: must not decrease")

    def at(self, level: FloatArray) -> FloatArray:
        """Lengths at these levels, float64 (n,)."""
        if self.quantiles is not None:
            return np.exp(np.interp(level, QUANTILES, np.log(self.quantiles)))
        assert self.sigma is not None
        return np.exp(self.sigma * np.array([_NORMAL.inv_cdf(each) for each in level]))


class LengthDraw(NamedTuple):
    """Requests of one seed before their outputs are scaled: prompts, int64 (n,) tokens; shape,
    float64 (n,); and the seed of what is predicted of them."""

    prompt_tokens: IntArray
    shape: FloatArray
    seed: int

    def output_tokens(self, scale: float, limit: int) -> IntArray:
        """Scaled outputs, int64 (n,): at least 1, and with the prompt at most `limit` tokens."""
        scaled = np.rint(np.minimum(scale * self.shape, limit)).astype(np.int64)
        return np.clip(scaled, 1, limit - self.prompt_tokens)


def draw(prompts: TokenLaw, shape: TokenLaw, count: int, seed: tuple[int, ...]) -> LengthDraw:
    """`count` requests of a seed."""
    sequence = np.random.SeedSequence(seed, spawn_key=tuple(b"policies.calibration"))
    level = np.random.default_rng(sequence).random((2, count))
    level = np.maximum(level, 1e-12)
    prompt_tokens = np.rint(prompts.at(level[0])).astype(np.int64)
    number = int(np.random.SeedSequence(seed).generate_state(1)[0])
    return LengthDraw(prompt_tokens, shape.at(level[1]), number)


class Solution(NamedTuple):
    """A value, the result it gives, and whether that reaches the target."""

    value: float
    given: float
    reached: bool


def solve_scale(target: float, draws: Sequence[LengthDraw], limit: int) -> Solution:
    """The scale of the outputs at which static reservation of `limit` uses the share `target`."""

    def used(scale: float) -> float:
        return float(np.mean([utilization(each, scale, limit) for each in draws]))

    return _bisect(used, target, SCALES)


def solve_spread(target: float, draws: Sequence[LengthDraw], scale: float, limit: int) -> Solution:
    """The sigma of lognormal prediction errors at which S3's accuracy is `target`."""

    def wrong(sigma: float) -> float:
        return -float(np.mean([s3_accuracy(each, scale, limit, sigma) for each in draws]))

    spread = _bisect(wrong, -target, SPREADS)
    return spread._replace(given=-spread.given)


def utilization(drawn: LengthDraw, scale: float, limit: int) -> float:
    """Mean share of a reservation of `limit` tokens that requests use."""
    used = drawn.prompt_tokens + drawn.output_tokens(scale, limit)
    return float(used.mean() / limit)


def s3_accuracy(drawn: LengthDraw, scale: float, limit: int, sigma: float) -> float:
    """Share of the predictions in the class of the length, of `S3_CLASSES` equal ones up to
    `limit`."""
    output_tokens = drawn.output_tokens(scale, limit)
    bounds = uniform_bounds(limit, S3_CLASSES)
    predicted = predict(error_of(sigma, limit), output_tokens, drawn.seed).length
    true = np.searchsorted(bounds, output_tokens, side="left")
    return float((np.searchsorted(bounds, predicted, side="left") == true).mean())


def error_of(sigma: float, limit: int) -> PredictorSpec:
    """The predictor: lognormal errors, and no prediction above what may come out. Raises
    DescriptionError where it is not registered."""
    if (kind := PREDICTORS.get("lognormal")) is None:
        raise DescriptionError("the errors are those of predictor lognormal, which is not there")
    return kind.model_validate({"sigma": sigma, "longest": limit})


def _bisect(
    rising: Callable[[float], float], target: float, between: tuple[float, float]
) -> Solution:
    """Where a non-decreasing function reaches `target`, by bisection of the logarithm."""
    low, high = map(math.log, between)
    for _ in range(STEPS):
        middle = (low + high) / 2
        if rising(math.exp(middle)) < target:
            low = middle
        else:
            high = middle
    given = rising(math.exp(high))
    return Solution(math.exp(high), given, abs(given - target) <= TOLERANCE)

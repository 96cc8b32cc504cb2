"""Predictions of the output length, and how uncertain they are.

Every request has its own draw, made from the seed and its index alone, so that policies compared
under one seed meet the same predictions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Literal, NamedTuple, Protocol

import numpy as np
from pydantic import Field, model_validator

from hwmodel.description import Strict
from policies.requests import FloatArray, IntArray

_LONGEST = 1e9
"""Predictions are cut here (tokens), so that they stay integers."""


class PredictorSpec(Strict):
    """`oracle` knows the length; `lognormal` is off by a factor exp(bias + sigma z), z normal."""

    kind: Literal["oracle", "lognormal"] = "oracle"
    sigma: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Spread of ln(predicted / true)."""
    bias: Annotated[float, Field(ge=-10, le=10)] = 0.0
    """Mean of ln(predicted / true), of which the predictor does not know."""

    @model_validator(mode="after")
    def _oracle_is_exact(self) -> PredictorSpec:
        if self.kind == "oracle" and (self.sigma or self.bias):
            raise ValueError("sigma and bias belong to kind: lognormal")
        return self


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


def entropy(prediction: Predictive, bounds: Sequence[float]) -> float:
    """Entropy of a prediction over the classes that `bounds` (ascending, output tokens) part, nats.

    -sum p ln p over len(bounds) classes; the last takes all that is left. From 0 to ln(classes).
    """
    edges = [0.0, *(prediction.below(bound) for bound in bounds[:-1]), 1.0]
    shares = [b - a for a, b in pairwise(edges)]
    return -sum(p * math.log(p) for p in shares if p > 0)


def predict(spec: PredictorSpec, output_tokens: IntArray, seed: int) -> FloatArray:
    """Predicted output tokens, float64 (n,), at least 1. The n-th draw belongs to the n-th request.

    Lognormal error: the literature's length predictors err by about a constant factor
    (S3, Jin et al. 2023; assumed form). With bias 0 the predictive law lognormal(length, sigma) is
    calibrated under a flat prior of ln(true).
    """
    exact = output_tokens.astype(np.float64)
    if spec.kind == "oracle":
        return exact
    key = tuple(b"policies.predictor")
    stream = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
    error = spec.bias + spec.sigma * stream.standard_normal(len(exact))
    return np.clip(exact * np.exp(error), 1.0, _LONGEST)

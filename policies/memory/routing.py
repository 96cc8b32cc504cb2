"""Which experts of each layer the tokens of a step pass through, and so which are read.

Expert e is chosen by a token with probability p_e, and these add up to the experts of a token; a
token's experts are drawn by systematic sampling over a random order (Madow 1949), which gives
exactly these probabilities and no expert twice. Tokens are independent (assumed), so that a batch
of T reads sum(1 - (1 - p_e)^T) distinct experts of a layer in the mean; under uniform routing
E (1 - (1 - k/E)^T). Published routers are trained for balance, and tokens of one text are alike;
`skew` covers either.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from hwmodel.description.description import Strict
from hwmodel.specs.mlp import ExpertsSpec
from policies.requests.requests import FloatArray, IntArray

_AT_ONCE = 256
"""Tokens drawn together."""


class RoutingSpec(Strict):
    """How tokens choose experts."""

    skew: Annotated[float, Field(ge=0, le=4)] = 0.0
    """p_e falls as the popularity rank of the expert to this power (Zipf), none above 1; 0:
    uniform. Ranks differ from layer to layer and stay for a run (assumed)."""


class Routing:
    """The routing of a run. seed: of the ranks and of the draws."""

    def __init__(
        self, experts: ExpertsSpec, spec: RoutingSpec | None = None,
        seed: int | tuple[int, ...] = 0,
    ) -> None:  # fmt: skip
        skew = 0.0 if spec is None else spec.skew
        self.key = (experts.count, experts.per_token, skew, seed)
        self._seed = seed
        self._share = probabilities(experts.count, experts.per_token, skew)
        self._expected: dict[int, float] = {}

    def expected(self, tokens: int) -> float:
        """Mean distinct experts of a layer that `tokens` pass through."""
        if tokens not in self._expected:
            self._expected[tokens] = float((1 - (1 - self._share) ** tokens).sum())
        return self._expected[tokens]

    def touched(self, tokens: int, layer: int, draw: int) -> IntArray:
        """Experts of a layer that `tokens` pass through, in order; `draw`: another number draws
        others."""
        count = len(self._share)
        key = (*b"policies.experts", layer)
        ranked = np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=key))
        expert = ranked.permutation(count)
        rng = np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=(*key, draw)))
        found = np.zeros(count, np.bool_)
        while tokens > 0 and not found.all():
            many = min(tokens, _AT_ONCE)
            order = rng.permuted(np.tile(np.arange(count), (many, 1)), axis=1)
            ends = np.cumsum(self._share[order], axis=1)
            # a point each whole step from a random start: the experts whose share has one
            passed = np.floor(ends + rng.random((many, 1)))
            hit = np.diff(passed, axis=1, prepend=0.0) > 0
            found[order[hit]] = True
            tokens -= many
        return np.sort(expert[found]).astype(np.int64)


def probabilities(count: int, per_token: int, skew: float) -> FloatArray:
    """Probability that a token passes through each expert, by rank; they add up to `per_token`."""
    weight = np.arange(1, count + 1, dtype=np.float64) ** -skew
    for sure in range(per_token + 1):
        rest = (per_token - sure) * weight[sure:] / weight[sure:].sum()
        if not len(rest) or rest[0] <= 1:
            break
    return np.concatenate((np.ones(sure), rest))

"""Each request goes to the card with fewer requests of two that are drawn (Mitzenmacher 2001)."""

from __future__ import annotations

import numpy as np

from policies.requests.requests import FloatArray, IntArray
from policies.routers.router import Router, RouterOptions


class TwoChoices(Router):
    name = "two-choices"

    def __init__(self, spec: RouterOptions) -> None:
        super().__init__(spec)
        self.draws = np.random.default_rng(1)  # the same in each run, so that runs compare

    def choose(self, request: int, count: IntArray, tokens: FloatArray) -> int:
        one, other = self.draws.integers(len(count), size=2)
        return int(one if count[one] <= count[other] else other)

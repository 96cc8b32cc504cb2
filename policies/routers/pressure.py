"""To the card under the least pressure.

The ODMA paper's idea (compute and memory pressure); how they are measured and weighed is assumed:

- compute pressure: requests on the card, waiting or running;
- memory pressure: tokens that those are predicted to store, prompts and predicted outputs;

each as a share of the most on any card, and `compute_weight` weighs the two.
"""

from __future__ import annotations

import numpy as np

from policies.requests.requests import FloatArray, IntArray
from policies.routers.router import Router


class Pressure(Router):
    """To the card with the least weighted sum of both."""

    name = "pressure"
    predicts = True
    options = ("compute_weight",)

    def choose(self, request: int, count: IntArray, tokens: FloatArray) -> int:
        weight = self.spec.compute_weight
        return int(np.argmin(weight * _relative(count) + (1 - weight) * _relative(tokens)))


def _relative(values: IntArray | FloatArray) -> FloatArray:
    """Shares of the largest."""
    return values / max(float(values.max()), 1e-300)

"""To the card with the fewest requests."""

from __future__ import annotations

import numpy as np

from policies.requests.requests import FloatArray, IntArray
from policies.routers.router import Router


class LeastRequests(Router):
    """To the card with the fewest requests, waiting or running."""

    name = "least_requests"

    def choose(self, request: int, count: IntArray, tokens: FloatArray) -> int:
        return int(np.argmin(count))

"""To the card that holds the least KV."""

from __future__ import annotations

import numpy as np

from policies.requests.requests import FloatArray, IntArray
from policies.routers.router import Router


class LeastKv(Router):
    """To the card that holds the fewest slots of KV, prompts in line included."""

    name = "least_kv"
    reports = True

    def choose(self, request: int, count: IntArray, tokens: FloatArray) -> int:
        return int(np.argmin(self.manager.kv_slots[self.manager.cards]))

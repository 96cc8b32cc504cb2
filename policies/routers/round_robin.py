"""To the cards in turn."""

from __future__ import annotations

from policies.requests.requests import FloatArray, IntArray
from policies.routers.router import Router


class RoundRobin(Router):
    """To the cards in turn, from the first on."""

    name = "round_robin"
    _next = -1

    def choose(self, request: int, count: IntArray, tokens: FloatArray) -> int:
        self._next += 1
        return self._next % len(count)

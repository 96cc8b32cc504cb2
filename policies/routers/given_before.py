"""To the card that was given the request's session or prefix last: base of the routers that do so.

What cards have lost since is not asked (assumed); `kv_aware` asks.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from policies.requests.requests import FloatArray, IntArray
from policies.routers.router import Router, RouterOptions


class GivenBefore(Router):
    """To the card that was last given the request's session, or the longest of its prefixes; to
    the one with the fewest requests where none was, or where that card has `more` more than it and
    `times` as many."""

    more: ClassVar[float]
    times: ClassVar[float]

    def __init__(self, spec: RouterOptions) -> None:
        super().__init__(spec)
        self._given: dict[tuple[str, int], int] = {}

    def choose(self, request: int, count: IntArray, tokens: FloatArray) -> int:
        requests, up = self.manager.requests, self.manager.cards
        keys = [("prefix", prefix) for prefix, _ in reversed(requests.prefixes(request))]
        if (session := int(requests.session[request])) >= 0:
            keys.insert(0, ("session", session))
        fewest = int(np.argmin(count))
        known = next((self._given[key] for key in keys if key in self._given), -1)
        chosen = int(np.searchsorted(up, known))
        if known < 0 or chosen == len(up) or up[chosen] != known:
            chosen = fewest
        ahead = count[chosen] - count[fewest] > self.more
        if ahead and count[chosen] > self.times * count[fewest]:
            chosen = fewest
        self._given.update(dict.fromkeys(keys, int(up[chosen])))
        return chosen

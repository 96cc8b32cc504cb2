"""Where a request goes as it arrives: what a manager asks, by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from policies.requests.requests import FloatArray, IntArray

if TYPE_CHECKING:
    from policies.serving.cluster import ClusterSpec, Manager


class Router(ABC):
    """Where a request goes as it arrives. One of one's own states its `name`."""

    name: ClassVar[str]
    manager: Manager
    """Knows the requests, the `cards` that serve, and their `kv_slots`."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec

    @abstractmethod
    def choose(self, request: int, count: IntArray, tokens: FloatArray) -> int:
        """The card, from 0, of `request`, among those that serve. count: requests on each of them,
        int64 (cards,); tokens: those they are predicted to store, float64 (cards,)."""


class RoundRobin(Router):
    name = "round_robin"
    _next = -1

    def choose(self, request: int, count: IntArray, tokens: FloatArray) -> int:
        self._next += 1
        return self._next % len(count)


class LeastRequests(Router):
    name = "least_requests"

    def choose(self, request: int, count: IntArray, tokens: FloatArray) -> int:
        return int(np.argmin(count))


class Pressure(Router):
    name = "pressure"

    def choose(self, request: int, count: IntArray, tokens: FloatArray) -> int:
        weight = self.spec.compute_weight
        return int(np.argmin(weight * _relative(count) + (1 - weight) * _relative(tokens)))


class PrefixAware(Router):
    """To the card that was last given the request's session, or the longest of its prefixes; to
    the one with the fewest requests where none was, or where that card has `_MORE` more than it
    and `_TIMES` as many.

    The form and both thresholds of SGLang's cache-aware router (lightseekorg/smg,
    docs/getting-started/load-balancing.md), which compares the fullest card instead. What cards
    have lost since is not asked (assumed).
    """

    name = "prefix_aware"
    _MORE = 64
    _TIMES = 1.5

    def __init__(self, spec: ClusterSpec) -> None:
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
        apart = count[chosen] - count[fewest] > self._MORE
        if apart and count[chosen] > self._TIMES * count[fewest]:
            chosen = fewest
        self._given.update(dict.fromkeys(keys, int(up[chosen])))
        return chosen


class KvAware(Router):
    """To the card that holds the fewest slots of KV, prompts in line included."""

    name = "kv_aware"

    def choose(self, request: int, count: IntArray, tokens: FloatArray) -> int:
        return int(np.argmin(self.manager.kv_slots[self.manager.cards]))


ROUTERS: dict[str, type[Router]] = {
    each.name: each for each in (RoundRobin, LeastRequests, Pressure, PrefixAware, KvAware)
}


def _relative(values: IntArray | FloatArray) -> FloatArray:
    """Shares of the largest."""
    return values / max(float(values.max()), 1e-300)

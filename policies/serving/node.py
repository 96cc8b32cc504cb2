"""Replicas behind a router: cards that serve alike, or those of one side of a pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from policies.allocators.capabilities import report_of
from policies.requests.requests import FloatArray, IntArray
from policies.routers.routers import ROUTERS
from policies.serving.cluster import Manager
from policies.serving.replica import Replica
from policies.serving.unit import Unit

MOST_CARDS = 64
"""Cards that a report lists one by one, at most."""
_PERCENTILES = (0, 10, 50, 90, 100)


class Node:
    """`make(card, life)`: an empty replica of a card, the `life`-th in that place, from 0.
    `together`: whether its replicas begin each step together."""

    def __init__(
        self, manager: Manager, make: Callable[[int, int], Replica], together: bool = False,
        name: str = "", first: int = 0,
    ) -> None:  # fmt: skip
        """first: the number of its first card among those of all nodes."""
        cards = manager.spec.cards
        self.name, self.manager, self.make = name, manager, make
        self._first = first
        self.built: list[Replica] = []
        """All there have been that know something of requests that no other does."""
        self.own = [self._made(card, 0) for card in range(cards)]
        """That of each card by itself."""
        self.replicas: list[Replica] = list(self.own)
        """That which serves each card now: several times where cards have one together."""
        self._groups: list[Replica] = []
        """All that several cards have been together."""
        self.busy_s: FloatArray = np.zeros(cards)
        """How long steps took on each card."""
        self.preemptions: IntArray = np.zeros(cards, np.int64)
        """Of requests; of cards that serve together on the first of them."""
        self.reports = ROUTERS[manager.spec.placement].reports
        """Whether its router hears of the KV on cards."""
        self.failed_s: FloatArray = np.full(cards, np.nan)
        """When each card failed last."""
        self.lives = [1] * cards
        self.failures = self.rerouted = 0
        self.lost_s = self.down_s = 0.0
        groups = [list(range(cards))] if together else [[card] for card in range(cards)]
        self.units = [
            Unit([self.own[card] for card in group], [(card,) for card in group])
            for group in groups
        ]
        manager.cached = self._cached
        self.unit_of = [unit for unit, group in zip(self.units, groups, strict=True) for _ in group]

    def replica_of(self, number: int) -> Replica | None:
        """That which serves the card with this number among those of all nodes; None: it is of
        another node."""
        card = number - self._first
        return self.replicas[card] if 0 <= card < len(self.replicas) else None

    def use(self, replica: Replica, cards: tuple[int, ...]) -> Unit:
        """From now on these cards, which were units of their own, serve together as `replica`."""
        unit = Unit([replica], [cards])
        replica.stands_on(self._first + cards[0])
        if len(cards) > 1 and replica not in self._groups:
            self._groups.append(replica)
        for card in cards:
            self.unit_of[card].version += 1  # what was planned of the old one is void
            self.replicas[card], self.unit_of[card] = replica, unit
        self.units = list(dict.fromkeys(self.unit_of))
        return unit

    def know(self, replica: Replica) -> Replica:
        """A replica of this node, which knows what is left of each request."""
        if self.built and not replica.shares:
            replica.engine.share_left(self.built[0].engine)
        if not replica.shares:
            self.built.append(replica)
        return replica

    def renew(self, card: int) -> Replica:
        """An empty replica stands where a card has lost all that it had, in the same unit."""
        replica = self._made(card, self.lives[card])
        self.lives[card] += 1
        unit, old = self.unit_of[card], self.own[card]
        unit.replicas = [replica if each is old else each for each in unit.replicas]
        self.own[card] = self.replicas[card] = replica
        return replica

    def _made(self, card: int, life: int) -> Replica:
        replica = self.make(card, life)
        replica.stands_on(self._first + card)
        return self.know(replica)

    def _cached(self, card: int, request: int) -> int:
        """How many tokens of a request a card has in memory now."""
        return self.replicas[card].engine.here(request)

    def figures(self, weights: IntArray) -> dict[str, Any]:
        """What components of its replicas report, as of one: means by `weights`, int64 (cards,);
        where cards have served together, by the requests that ended on each replica."""
        replicas = [*self.own, *self._groups]
        if self._groups:
            weights = np.array([each.served for each in replicas], np.int64)
        return mean_of([each.figures() for each in replicas], weights)

    def report(self, outputs: IntArray) -> dict[str, Any]:
        """What `merged` takes. outputs: int64 (n,), output tokens of each request."""
        served = self.manager.card_of >= 0
        where, many = self.manager.card_of[served], len(self.own)
        return {
            "requests": np.bincount(where, minlength=many),
            "output_tokens": np.bincount(where, outputs[served], many),
            "busy_s": self.busy_s,
            "preemptions": self.preemptions,
            "policies": [report_of(each.engine.allocator) for each in self.own[:MOST_CARDS]],
            "failures": self.failures,
            "rerouted": self.rerouted,
            "lost_s": self.lost_s,
            "down_s": self.down_s,
        }


def merged(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """The report of the nodes of these cells as one: `cards`, what each did, where they are few,
    and quantiles over them (p0 is the least) of the requests that ended there, their output tokens,
    and seconds of steps. `imbalance` is the most output tokens of a card over the mean, less 1.
    `failures` of cards; `rerouted` requests, once each time they left a card that failed; `lost_s`,
    of steps that a failure ended; `down_s`, while cards were away."""
    found: dict[str, Any] = {}
    every = {
        key: np.concatenate([report[key] for report in reports])
        for key in ("requests", "output_tokens", "busy_s", "preemptions")
    }
    policies = [each for report in reports for each in report["policies"]]
    if len(policies) == len(every["requests"]) <= MOST_CARDS:
        found["cards"] = [
            {
                "requests": int(every["requests"][card]),
                "output_tokens": int(every["output_tokens"][card]),
                "busy_s": float(every["busy_s"][card]),
                "preemptions": int(every["preemptions"][card]),
                "policy": policy,
            }
            for card, policy in enumerate(policies)
        ]
    for key in ("requests", "output_tokens", "busy_s"):
        points = np.percentile(every[key].astype(np.float64), _PERCENTILES)
        found[key] = dict(zip((f"p{p}" for p in _PERCENTILES), points.tolist(), strict=True))
    tokens = every["output_tokens"].astype(np.float64)
    found["imbalance"] = float(tokens.max() * len(tokens) / max(tokens.sum(), 1) - 1)
    for key in ("failures", "rerouted", "lost_s", "down_s"):
        found[key] = sum(report[key] for report in reports)
    return found


def mean_of(reports: list[dict[str, Any]], weights: IntArray) -> dict[str, Any]:
    """Reports of cards as one: means of their numbers, each card's with its weight, None where a
    card has none; lists stay with the cards. The mean of half-widths (`ci95`) is the most that
    the mean's own can be."""
    share = weights / max(int(weights.sum()), 1)
    means: dict[str, Any] = {}
    for key, value in reports[0].items():
        values = [report.get(key) for report in reports]
        if None in values:
            means[key] = None
        elif isinstance(value, dict):
            means[key] = mean_of([report[key] for report in reports], weights)
        elif isinstance(value, int | float):
            means[key] = float(share @ np.array(values, np.float64))
        elif isinstance(value, str):
            means[key] = value
    return means

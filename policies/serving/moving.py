"""A node whose requests move between its cards while they run.

Decisions come at even intervals. What moves is decided and handed over between the steps of the
cards that it concerns; copies go on meanwhile, and take bandwidth from the memories at both ends.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

from policies.engines.hosting_engine import HostingEngine
from policies.serving.cluster import Manager, Node
from policies.serving.replica import Replica

MOST_TOGETHER = 16
"""Steps advanced together at most: decisions come every few."""


class MovingNode(Node):
    """`replicas`: that of each card, several times where cards have one together."""

    def __init__(self, replicas: list[Replica], manager: Manager, every_s: float) -> None:
        super().__init__(list(replicas), manager)
        self.own = replicas
        self.built = list(replicas)
        self._every_s = every_s
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = 0
        self._at(every_s, self._tick)

    def decide(self, at_s: float) -> None:
        """Choose what moves, between two steps of every card."""
        raise NotImplementedError

    def _tick(self, at_s: float) -> None:
        self.decide(at_s)
        self._at(at_s + self._every_s, self._tick)

    def _at(self, at_s: float, act: Callable[[float], None]) -> None:
        """Call `act` when no card's next step begins before `at_s`."""
        self._order += 1
        heapq.heappush(self._events, (at_s, self._order, act))

    def engine(self, card: int) -> HostingEngine:
        """That which serves a card now."""
        found = self.replicas[card].hosting
        assert found is not None
        return found

    def _advance(
        self, until_s: float, count: int, progress: Callable[[int, int], None] | None
    ) -> bool:
        card = min(range(len(self.replicas)), key=lambda index: self.replicas[index].next_s)
        replica, before_s = self.replicas[card], self._metrics.sums.seconds
        first_s, due_s = min(replica.next_s, until_s), self._events[0][0]
        if due_s <= first_s < math.inf:
            heapq.heappop(self._events)[2](due_s)
            return True
        if replica.next_s >= until_s:
            return False
        step, fitting = replica.begin(until_s)
        if replica.idles(step):
            return True
        rounds, efficiency = replica.observe(step)
        times = replica.times(step, min(rounds, MOST_TOGETHER), efficiency)
        cut_s = max(min(until_s, due_s), math.nextafter(replica.now_s, math.inf))
        ended = replica.end(step, fitting, *replica.cut(step, times, cut_s))
        self.busy_s[card] += self._metrics.sums.seconds - before_s
        self.manager.ended(ended, replica.now_s)
        if ended and progress is not None:
            progress(self._metrics.ended, count)
        return True

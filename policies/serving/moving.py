"""A node whose requests move between its cards while they run.

Decisions come at even intervals. What moves is decided and handed over between the steps of the
cards that it concerns; copies go on meanwhile, and take bandwidth from the memories at both ends.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

from policies.serving.cluster import Manager, Node
from policies.serving.replica import Replica
from policies.transfers.hosting import Hosting


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

    @property
    def due_s(self) -> float:
        return self._events[0][0]

    def _tick(self, at_s: float) -> None:
        self.decide(at_s)
        self._at(at_s + self._every_s, self._tick)

    def _at(self, at_s: float, act: Callable[[float], None]) -> None:
        """Call `act` when no card's next step begins before `at_s`."""
        self._order += 1
        heapq.heappush(self._events, (at_s, self._order, act))

    def engine(self, card: int) -> Hosting:
        """That of the engine which serves a card now."""
        found = self.replicas[card].hosting
        assert found is not None
        return found

    def _advance(
        self, until_s: float, count: int, progress: Callable[[int, int], None] | None
    ) -> bool:
        first_s = min(until_s, *(replica.next_s for replica in self.replicas))
        if self.due_s <= first_s < math.inf:
            at_s, _, act = heapq.heappop(self._events)
            act(at_s)
            return True
        return super()._advance(until_s, count, progress)

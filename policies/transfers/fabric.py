"""Transfers between the replicas of two pools: each replica sends, or receives, one at a time.

A transfer waits in the order of putting until its source and its target are free; one whose
source or target is busy is overtaken. It takes what the link says for its busiest rank, each of
which has a link of its own. Every transfer that is put either arrives once or is dropped.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field

Place = tuple[str, int]
"""A pool and the number of a replica."""


@dataclass(eq=False)
class Sent:
    """KV of a request on its way. `bytes` and `descriptors`: of the busiest rank."""

    request: int
    source: Place
    target: Place
    bytes: int
    descriptors: int
    seconds: float
    spread: float = 1.0
    """Bytes of a rank of the target for each of the source."""
    last: bool = True
    """Whether no other follows for the same request."""
    tokens: tuple[int, int] = (0, 0)
    """The first of the request's that moves, and the one behind the last."""
    until_s: float = 0.0
    """It cannot be there before (its last layer is not computed)."""
    put_s: float = 0.0
    began_s: float = math.inf
    due_s: float = math.inf
    dropped: bool = False


@dataclass
class Fabric:
    """All transfers that have not arrived."""

    now_s: float = 0.0
    busy_s: dict[Place, float] = field(default_factory=dict)
    """Time that a replica's link was busy with transfers that arrived."""
    _later: list[tuple[float, int, Sent]] = field(default_factory=list)
    _line: list[Sent] = field(default_factory=list)
    _under_way: list[tuple[float, int, Sent]] = field(default_factory=list)
    _busy: dict[Place, Sent] = field(default_factory=dict)
    _order: int = 0

    def put(self, sent: Sent, at_s: float) -> None:
        """It waits from `at_s` on, which is not before `now_s`."""
        sent.put_s = at_s
        self._order += 1
        heapq.heappush(self._later, (at_s, self._order, sent))

    @property
    def due_s(self) -> float:
        """When the next transfer is put or arrives; inf where there is none."""
        return min(
            self._later[0][0] if self._later else math.inf,
            self._under_way[0][0] if self._under_way else math.inf,
        )

    def step(self) -> list[Sent]:
        """Go on to `due_s`: what arrives then."""
        self.now_s = self.due_s
        came: list[Sent] = []
        while self._under_way and self._under_way[0][0] <= self.now_s:
            sent = heapq.heappop(self._under_way)[2]
            if sent.dropped:
                continue
            came.append(sent)
            for place in (sent.source, sent.target):
                del self._busy[place]
                self.busy_s[place] = self.busy_s.get(place, 0.0) + self.now_s - sent.began_s
        while self._later and self._later[0][0] <= self.now_s:
            self._line.append(heapq.heappop(self._later)[2])
        self._begin()
        return came

    def drop(self, sent: Sent) -> None:
        """Take back a transfer that has not arrived; what has moved of it is lost."""
        sent.dropped = True
        for place in (sent.source, sent.target):
            if self._busy.get(place) is sent:
                del self._busy[place]
        self._begin()

    @property
    def busy(self) -> dict[Place, Sent]:
        """What each replica that does sends or receives now."""
        return dict(self._busy)

    def under_way(self, place: Place) -> Sent | None:
        """What a replica sends or receives now."""
        return self._busy.get(place)

    def rate(self, place: Place) -> float:
        """Bytes a second of a rank that a replica sends or receives now."""
        sent = self._busy.get(place)
        if sent is None:
            return 0.0
        size = sent.bytes * (sent.spread if place == sent.target else 1.0)
        return size / (sent.due_s - sent.began_s)

    def _begin(self) -> None:
        """Begin what waits between replicas that are both free."""
        left: list[Sent] = []
        for sent in self._line:
            if sent.dropped:
                continue
            if sent.source in self._busy or sent.target in self._busy:
                left.append(sent)
                continue
            self._busy[sent.source] = self._busy[sent.target] = sent
            sent.began_s = self.now_s
            sent.due_s = max(self.now_s + sent.seconds, sent.until_s)
            self._order += 1
            heapq.heappush(self._under_way, (sent.due_s, self._order, sent))
        self._line = left

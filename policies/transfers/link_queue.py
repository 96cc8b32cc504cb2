"""Transfers that wait for a link: in each direction one at a time, by priority, then in the order
they were put.

A transfer that has begun goes on to its end. While both directions are busy each goes at the
link's rate for that; where the memory behind the link gives less than both ask for, both slow
down alike. Work is counted as a share of a transfer, so that times are exact for any changes of
rate. Every transfer that is put either arrives once or is dropped.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hwmodel.specs.link import Cost
from policies.allocators.kv_layout import Units

IN, OUT = 0, 1
"""Directions: to the device, and from it."""


class Near(NamedTuple):
    """Tokens [first, last) of these units of the card; None: to their end."""

    units: Units
    first: int
    last: int | None


@dataclass(eq=False)
class Job:
    """A transfer. `alone`, `both`: what it costs with the other direction idle, and busy. `what`:
    whatever its owner knows it by."""

    direction: int
    priority: int
    """Less goes first."""
    bytes: int
    descriptors: int
    alone: Cost
    both: Cost
    what: Any = None
    near: tuple[Near, ...] = ()
    """What of the card it reads or writes, in order."""
    put_s: float = 0.0
    began_s: float = math.inf
    left: float = 1.0
    """Share that has not arrived."""
    dropped: bool = False


@dataclass
class LinkQueue:
    """`far_bandwidth`: bytes a second of the memory behind the link, of both directions together;
    inf: not limited."""

    far_bandwidth: float = math.inf
    now_s: float = 0.0
    _lines: tuple[list[tuple[int, int, Job]], ...] = field(default_factory=lambda: ([], []))
    _now: list[Job | None] = field(default_factory=lambda: [None, None])
    _order: int = 0
    moved_bytes: float = 0.0
    """Moved so far, in both directions, also of transfers that were dropped under way."""
    busy_s: float = 0.0
    """Time that any direction was busy."""

    def put(self, job: Job) -> None:
        """Wait for the link from now on."""
        job.put_s = self.now_s
        self._order += 1
        heapq.heappush(self._lines[job.direction], (job.priority, self._order, job))
        self._begin(job.direction)

    def drop(self, job: Job) -> None:
        """Take back a transfer that has not arrived; what has moved of it is lost."""
        job.dropped = True
        if self._now[job.direction] is job:
            self._now[job.direction] = None
            self._begin(job.direction)

    def clear(self) -> list[Job]:
        """Drop all that has not arrived: these."""
        jobs = [job for job in self._now if job is not None]
        jobs += [job for line in self._lines for _, _, job in line if not job.dropped]
        for line in self._lines:
            line.clear()
        self._now = [None, None]
        for job in jobs:
            job.dropped = True
        return jobs

    @property
    def under_way(self) -> list[Job]:
        """What moves now."""
        return [job for job in self._now if job is not None]

    def wait_s(self, direction: int) -> float:
        """How long what is under way or waits in a direction takes, at today's rates."""
        job = self._now[direction]
        waiting = (each for _, _, each in self._lines[direction] if not each.dropped)
        behind = sum(each.alone.total_ns for each in waiting) / 1e9
        return behind + (0.0 if job is None else job.left / self._speed(job))

    @property
    def due_s(self) -> float:
        """When the next transfer arrives, as rates are now; inf where none is under way."""
        return min((self._due(job) for job in self._now if job is not None), default=math.inf)

    def rate(self, direction: int | None = None) -> float:
        """Bytes a second that move now, in a direction or in both."""
        jobs = (job for job in self._now if job is not None)
        return sum(
            job.bytes * self._speed(job) for job in jobs if direction in (None, job.direction)
        )

    def until(self, now_s: float) -> list[Job]:
        """Go on to `now_s`, or to the next arrival if that comes first: what arrives then."""
        due_s = self.due_s
        at_s = min(due_s, now_s)
        came = [
            job for job in self._now if job is not None and due_s <= now_s
            and self._due(job) == due_s
        ]  # fmt: skip
        step_s = at_s - self.now_s
        self.busy_s += step_s * (due_s < math.inf)
        for job in self._now:
            if job is not None:
                before = job.left
                speed = 0.0 if job in came else self._speed(job)
                job.left = 0.0 if job in came else max(before - step_s * speed, 0.0)
                self.moved_bytes += (before - job.left) * job.bytes
        self.now_s = at_s
        for job in came:
            self._now[job.direction] = None
        for job in came:
            self._begin(job.direction)
        return came

    def _begin(self, direction: int) -> None:
        line = self._lines[direction]
        while self._now[direction] is None and line:
            job = heapq.heappop(line)[2]
            if not job.dropped:
                job.began_s = self.now_s
                self._now[direction] = job

    def _due(self, job: Job) -> float:
        return self.now_s + job.left / self._speed(job)

    def _speed(self, job: Job) -> float:
        """Share of a transfer that moves in a second."""
        both = all(each is not None for each in self._now)
        asked = [each for each in self._now if each is not None]
        rates = [1e9 / (each.both if both else each.alone).total_ns for each in asked]
        wanted = sum(rate * each.bytes for rate, each in zip(rates, asked, strict=True))
        share = min(1.0, self.far_bandwidth / wanted) if wanted else 1.0
        return share * rates[asked.index(job)]

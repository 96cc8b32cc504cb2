"""A link: transfers that wait for it, and go over it one at a time at each of their ends.

The ends of a transfer are a direction of the link between a card and its host, or the replicas that
send it and receive it. It waits, by priority and then in the order of putting, until all of its
ends are free; one whose ends are busy is overtaken. Begun, it goes on to its end.

Transfers of one link share it: while both directions are busy each goes at the link's rate for
that; where the memory behind the link gives less than both ask for, both slow down alike. Those of
links of their own (`apart`) do not slow each other. Work is counted as a share of a transfer, so
that times are exact for any changes of rate. Every transfer that is put either arrives once or is
dropped once.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from policies.allocators.kv_layout import Units

IN, OUT = 0, 1
"""Directions: to the device, and from it."""
End = Any
"""A direction, or a replica; hashable."""


class Near(NamedTuple):
    """Tokens [first, last) of these units of the card; None: to their end."""

    units: Units
    first: int
    last: int | None


@dataclass(eq=False, kw_only=True)
class Job:
    """A transfer between `ends`, the first of which may be a direction."""

    ends: tuple[End, ...]
    bytes: int
    descriptors: int
    alone_s: float
    """What it takes by itself."""
    both_s: float | None = None
    """What it takes while the other direction is busy, too; None: as much."""
    priority: int = 0
    """Less goes first."""
    what: Any = None
    """Whatever its owner knows it by."""
    near: tuple[Near, ...] = ()
    """What of the card it reads or writes, in order."""
    until_s: float = 0.0
    """It cannot be there before."""
    put_s: float = 0.0
    began_s: float = math.inf
    due_s: float = math.inf
    """When it arrives at today's rate; inf: it waits."""
    left: float = 1.0
    """Share that had not arrived at `since_s`."""
    since_s: float = 0.0
    speed: float = 0.0
    """Share that moves in a second."""
    order: int = 0
    dropped: bool = False

    @property
    def rate(self) -> float:
        """Bytes a second that move of it."""
        return self.bytes * self.speed


JobKind = TypeVar("JobKind", bound=Job)


@dataclass
class Link(Generic[JobKind]):
    """`far_bandwidth`: bytes a second of the memory behind the link, of both directions together;
    inf: not limited. `apart`: each transfer has a link of its own between its ends."""

    far_bandwidth: float = math.inf
    apart: bool = False
    now_s: float = 0.0
    busy_s: dict[End, float] = field(default_factory=dict)
    """Time that an end was busy with transfers that arrived."""
    _later: list[tuple[float, int, JobKind]] = field(default_factory=list)
    _lines: dict[End, list[tuple[int, int, JobKind]]] = field(default_factory=dict)
    _now: dict[End, JobKind] = field(default_factory=dict)
    _due: list[tuple[float, int, JobKind]] = field(default_factory=list)
    """A heap of arrivals; one that is not its transfer's `due_s` any more is void."""
    _order: int = 0

    def put(self, job: JobKind, at_s: float | None = None) -> None:
        """It waits from `at_s` on, which is not before `now_s`; None: from now on."""
        job.put_s = self.now_s if at_s is None else at_s
        if at_s is None:
            self._line(job)
            self._begin(job.ends)
        else:
            self._order += 1
            heapq.heappush(self._later, (at_s, self._order, job))

    def drop(self, job: JobKind, at_s: float = 0.0) -> None:
        """Take back a transfer that has not arrived; what has moved of it is lost. at_s: the time,
        by which all that was due has arrived or arrives now, where it is later than `now_s`."""
        self.now_s = max(self.now_s, at_s)
        job.dropped = True
        if job.due_s < math.inf:
            self._free([job])
            self._begin(job.ends)
        else:
            self._unline(job)

    def clear(self) -> list[JobKind]:
        """Drop all that has not arrived: these."""
        lines = (line for _, line in sorted(self._lines.items(), key=lambda each: str(each[0])))
        waiting = [job for line in lines for _, _, job in line]
        jobs = list(dict.fromkeys((*self.under_way, *waiting, *(job for *_, job in self._later))))
        self._free(self.under_way)
        for each in (self._lines, self._now, self._due, self._later):
            each.clear()
        for job in jobs:
            job.dropped = True
        return jobs

    @property
    def busy(self) -> dict[End, JobKind]:
        """What each end that does carries now."""
        return dict(self._now)

    @property
    def under_way(self) -> list[JobKind]:
        """What moves now."""
        return list(dict.fromkeys(self._now.values()))

    def at(self, end: End) -> JobKind | None:
        """What moves at an end now."""
        return self._now.get(end)

    def left(self, job: JobKind) -> float:
        """Share of a transfer that has not arrived."""
        return max(job.left - (self.now_s - job.since_s) * job.speed, 0.0)

    def wait_s(self, end: End) -> float:
        """How long what is under way or waits at an end takes, at today's rates."""
        job = self._now.get(end)
        behind = sum(each.alone_s for _, _, each in self._lines.get(end, ()))
        return behind + (0.0 if job is None else self.left(job) / job.speed)

    def rate(self, end: End | None = None) -> float:
        """Bytes a second that move now, at an end or in all."""
        if end is not None:
            job = self._now.get(end)
            return 0.0 if job is None else job.rate
        return sum(job.rate for job in self.under_way)

    @property
    def due_s(self) -> float:
        """When the next transfer is put or arrives, as rates are now; inf where there is none."""
        due, later = self._due, self._later
        while due and due[0][0] != due[0][2].due_s:
            heapq.heappop(due)
        while later and later[0][2].dropped:
            heapq.heappop(later)
        return min(due[0][0] if due else math.inf, later[0][0] if later else math.inf)

    def until(self, now_s: float) -> list[JobKind]:
        """Go on to `now_s`, or to `due_s` if that comes first: what arrives then."""
        self.now_s = min(self.due_s, now_s)
        came: list[JobKind] = []
        while self._due and self._due[0][0] <= self.now_s:
            due_s, _, job = heapq.heappop(self._due)
            if due_s == job.due_s:
                job.left, job.since_s, job.due_s = 0.0, self.now_s, math.inf
                came.append(job)
        ends = [end for job in came for end in job.ends]
        for job in came:
            for end in job.ends:
                self.busy_s[end] = self.busy_s.get(end, 0.0) + self.now_s - job.began_s
        self._free(came)
        while self._later and self._later[0][0] <= self.now_s:
            job = heapq.heappop(self._later)[2]
            if not job.dropped:
                self._line(job)
                ends += job.ends
        self._begin(ends)
        return came

    def _line(self, job: JobKind) -> None:
        self._order += 1
        job.order = self._order
        for end in job.ends:
            insort(self._lines.setdefault(end, []), (job.priority, job.order, job))

    def _unline(self, job: JobKind) -> None:
        """It is in no line any more."""
        key = job.priority, job.order
        for end in job.ends:
            line = self._lines.get(end, [])
            at = bisect_left(line, key)
            if at < len(line) and line[at][2] is job:
                del line[at]

    def _free(self, jobs: list[JobKind]) -> None:
        """These are not under way any more."""
        for job in jobs:
            job.left, job.since_s = self.left(job), self.now_s
            job.due_s, job.speed = math.inf, 0.0
            for end in job.ends:
                del self._now[end]
        if jobs:
            self._share()

    def _begin(self, ends: Iterable[End]) -> None:
        """Begin what waits at these ends and has all of its own free, in order."""
        free = {end for end in ends if end not in self._now}
        lines = [self._lines[end] for end in free if self._lines.get(end)]
        begun: list[JobKind] = []
        for _, _, job in heapq.merge(*lines):
            if not free:
                break
            if any(end in self._now for end in job.ends):
                continue
            job.began_s = job.since_s = self.now_s
            for end in job.ends:
                self._now[end] = job
            free.difference_update(job.ends)
            begun.append(job)
        for job in begun:
            self._unline(job)
            if self.apart:
                self._goes(job, 1 / job.alone_s)
        if begun:
            self._share()

    def _share(self) -> None:
        """Transfers of one link that are under way go as fast as they let each other."""
        if self.apart or not self._now:
            return
        jobs = self.under_way
        both = len(jobs) > 1
        speeds = [1 / (job.both_s if both and job.both_s else job.alone_s) for job in jobs]
        wanted = sum(speed * job.bytes for speed, job in zip(speeds, jobs, strict=True))
        share = min(1.0, self.far_bandwidth / wanted) if wanted else 1.0
        for speed, job in zip(speeds, jobs, strict=True):
            self._goes(job, share * speed)

    def _goes(self, job: JobKind, speed: float) -> None:
        """From now on it moves so fast, or as slowly as what it brings is made."""
        if speed == job.speed:
            return
        job.left, job.since_s = self.left(job), self.now_s
        job.due_s = max(self.now_s + job.left / speed, job.until_s)
        job.speed = job.left / (job.due_s - self.now_s) if job.due_s > self.now_s else speed
        heapq.heappush(self._due, (job.due_s, job.order, job))

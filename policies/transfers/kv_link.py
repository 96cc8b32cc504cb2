"""A link: transfers that wait for it, and go over it one at a time at each of their ends.

The ends of a transfer are a direction of the link between a card and its host, or the replicas that
send it and receive it. It waits, by priority and then in the order of putting, until all of its
ends are free; one whose ends are busy is overtaken. Begun, it goes on to its end.

Transfers of one link share it: while both directions are busy each goes at the link's rate for
that; where the memory behind the link gives less than both ask for, both slow down alike. Those of
links of their own (`apart`) do not slow each other. One with a priority below 0, which is small
(queries of attention, between the descriptors of what is under way), waits for its like alone, and
what it meets stands still meanwhile (assumed). Work is counted as a share of a transfer, so that
times are exact for any changes of rate. Every transfer that is put either lands once or is lost
once.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, TypeVar

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


class KvPlace(NamedTuple):
    """Where KV can be: the card of a node by its number, its host, or a drive at that. Of a replica
    with several cards its first stands for all, which move their shares at the same time."""

    node: str
    card: int
    kind: Literal["card", "host", "drive"] = "card"

    @property
    def host(self) -> KvPlace:
        """That of the card."""
        return self._replace(kind="host")

    @property
    def drive(self) -> KvPlace:
        """That of the card's host."""
        return self._replace(kind="drive")


@dataclass(eq=False, kw_only=True)
class Transfer:
    """KV on its way from one place to another, the only way for it to move. Between cards it takes
    the links of each `source` out and of each `target` in."""

    source: tuple[KvPlace, ...] = ()
    target: tuple[KvPlace, ...] = ()
    request: int = -1
    """Whose KV it is; -1: of several, or none's."""
    tokens: tuple[int, int] = (0, 0)
    """The first of the request's that moves, and the one behind the last."""
    bytes: int
    """Of the busiest card, each of which has a link of its own."""
    descriptors: int = 1
    alone_s: float
    """What it takes by itself."""
    both_s: float | None = None
    """What it takes while the other direction is busy, too; None: as much."""
    priority: int = 0
    """Less goes first; below 0 it goes at once: what is under way at its ends stands still
    meanwhile."""
    on_landed: Callable[[Any, float], None] | None = None
    """Called with it and the time when all of it has arrived; not if it is lost."""
    way: str = ""
    """What moves it, by which its owner knows it."""
    what: Any = None
    """Whatever else its owner knows it by."""
    read: float = 0.0
    """Bytes a second of the DRAM of each card that it comes from, while it moves; where it has a
    connector of its own there, that says so."""
    written: float = 0.0
    """The same of each card that it goes to."""
    felt: bool = True
    """Whether it changes the steps of cards at its ends while it moves."""
    ends: tuple[End, ...] = ()
    """What of a link it takes; none: the directions of `source` and `target`."""
    near: tuple[Near, ...] = ()
    """What of the card it reads or writes, in order."""
    until_s: float = 0.0
    """It cannot be there before."""
    put_s: float = 0.0
    began_s: float = math.inf
    due_s: float = math.inf
    """When it arrives at today's rate; inf: it waits, or stands still."""
    left: float = 1.0
    """Share that had not arrived at `since_s`."""
    since_s: float = 0.0
    speed: float = 0.0
    """Share that moves in a second."""
    order: int = 0
    dropped: bool = False
    landed_s: float = math.inf

    def __post_init__(self) -> None:
        if not self.ends:
            out, into = ((each, OUT) for each in self.source), ((each, IN) for each in self.target)
            self.ends = (*out, *into)

    @property
    def over(self) -> bool:
        """Whether it has landed, or is lost."""
        return self.dropped or self.landed_s < math.inf

    def __lt__(self, other: Transfer) -> bool:
        return self.order < other.order

    def meets(self, other: Transfer) -> bool:
        """Whether both go at once, and would by themselves take an end at the same time."""
        first, then = sorted((self, other), key=lambda each: each.put_s)
        at_once = self.priority < 0 and other.priority < 0
        beside = then.put_s < first.put_s + first.alone_s
        return at_once and beside and not set(self.ends).isdisjoint(other.ends)

    @property
    def rate(self) -> float:
        """Bytes a second that move of it."""
        return self.bytes * self.speed

    @property
    def places(self) -> tuple[KvPlace, ...]:
        """Where it comes from and goes to."""
        return (*self.source, *self.target)


Kind = TypeVar("Kind", bound=Transfer)


@dataclass(eq=False)
class KvLink(Generic[Kind]):
    """`far_bandwidth`: bytes a second of the memory behind the link, of both directions together;
    inf: not limited. `apart`: each transfer has a link of its own between its ends."""

    far_bandwidth: float = math.inf
    apart: bool = False
    now_s: float = 0.0
    busy_s: dict[End, float] = field(default_factory=dict)
    """Time that an end was busy with transfers that arrived."""
    _later: list[tuple[float, int, Kind]] = field(default_factory=list)
    _lines: dict[End, list[tuple[int, int, Kind]]] = field(default_factory=dict)
    _now: dict[End, Kind] = field(default_factory=dict)
    _due: list[tuple[float, int, Kind]] = field(default_factory=list)
    """A heap of arrivals; one that is not its transfer's `due_s` any more is void."""
    _order: int = 0

    def put(self, job: Kind, at_s: float | None = None) -> None:
        """It waits from `at_s` on, which is not before `now_s`; None: from now on."""
        job.put_s = self.now_s if at_s is None else at_s
        if at_s is None:
            self._line(job)
            self._begin(self._lanes(job))
        else:
            self._order += 1
            heapq.heappush(self._later, (at_s, self._order, job))

    def drop(self, job: Kind, at_s: float = 0.0) -> None:
        """Take back a transfer that has not arrived; what has moved of it is lost. at_s: the time,
        by which all that was due has arrived or arrives now, where it is later than `now_s`."""
        self.now_s = max(self.now_s, at_s)
        job.dropped = True
        if job in self._now.values():
            self._free([job])
            self._begin(self._lanes(job))
        else:
            self._unline(job)

    def clear(self, way: str) -> list[Kind]:
        """Drop all of a way that has not arrived: these."""
        lines = (line for _, line in sorted(self._lines.items(), key=lambda each: str(each[0])))
        waiting = [job for line in lines for _, _, job in line]
        found = dict.fromkeys((*self.under_way, *waiting, *self.planned))
        jobs = [job for job in found if job.way == way]
        moving = [job for job in self.under_way if job.way == way]
        for job in jobs:
            job.dropped = True
            if job not in moving:
                self._unline(job)
        self._free(moving)
        self._begin([end for job in moving for end in self._lanes(job)])
        return jobs

    @property
    def busy(self) -> dict[End, Kind]:
        """What each end that does carries now."""
        return dict(self._now)

    @property
    def under_way(self) -> list[Kind]:
        """What moves now."""
        return list(dict.fromkeys(self._now.values()))

    @property
    def planned(self) -> list[Kind]:
        """What is put for a time to come."""
        return [job for *_, job in self._later if not job.dropped]

    def at(self, end: End) -> Kind | None:
        """What moves at an end now."""
        return self._now.get(end)

    def left(self, job: Kind) -> float:
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

    def until(self, now_s: float) -> list[Kind]:
        """Go on to `now_s`, or to `due_s` if that comes first: what arrives then."""
        self.now_s = min(self.due_s, now_s)
        came: list[Kind] = []
        while self._due and self._due[0][0] <= self.now_s:
            due_s, _, job = heapq.heappop(self._due)
            if due_s == job.due_s:
                job.left, job.since_s, job.due_s = 0.0, self.now_s, math.inf
                job.landed_s = self.now_s
                came.append(job)
        ends = [end for job in came for end in self._lanes(job)]
        for job in came:
            for end in job.ends:
                self.busy_s[end] = self.busy_s.get(end, 0.0) + self.now_s - job.began_s
        self._free(came)
        while self._later and self._later[0][0] <= self.now_s:
            job = heapq.heappop(self._later)[2]
            if not job.dropped:
                self._line(job)
                ends += self._lanes(job)
        self._begin(ends)
        for job in came:
            if job.on_landed is not None:
                job.on_landed(job, self.now_s)
        return came

    def end_s(self, transfer: Kind) -> float:
        """When it arrives, as far as is known: at today's rates, behind those that are to go before
        it. It may not have been put yet."""
        if transfer.landed_s < math.inf or transfer.due_s < math.inf:
            return min(transfer.landed_s, transfer.due_s)
        planned = [job for job in self._to_be_put() if job.put_s <= transfer.put_s]
        ends = self._ends([*self._waiting(), *planned, transfer])
        return next(over_s for job, over_s in ends if job is transfer)

    def ends_s(self, transfers: Sequence[Kind]) -> list[float]:
        """`end_s` of each; the line is looked at once for all that are in it."""
        open_ = [each for each in transfers if math.isinf(min(each.landed_s, each.due_s))]
        if not open_:
            return [self.end_s(each) for each in transfers]
        line = self._ends([*self._waiting(), *self._to_be_put()])
        found = {id(job): over_s for job, over_s in line}
        known = {id(each): found[id(each)] for each in open_ if id(each) in found}
        return [known[id(each)] if id(each) in known else self.end_s(each) for each in transfers]

    def _waiting(self) -> list[Kind]:
        """What is in line, in the order in which it goes."""
        line = {id(job): job for lane in self._lines.values() for _, _, job in lane}
        return sorted(line.values(), key=lambda job: (job.priority, job.order))

    def _to_be_put(self) -> list[Kind]:
        """What is put for a time to come, in the order in which it will be."""
        return [job for *_, job in sorted(self._later, key=lambda each: each[:2])]

    def _ends(self, line: Iterable[Kind]) -> Iterator[tuple[Kind, float]]:
        """When each of a line arrives, behind what is under way and those before it."""
        free: dict[End, float] = {}
        for job in self.under_way:
            over_s = min(job.due_s, self.now_s + self.left(job) * job.alone_s)
            free |= {end: max(free.get(end, 0.0), over_s) for end in self._lanes(job)}
        for job in line:
            lanes = self._lanes(job)
            begin_s = max(self.now_s, job.put_s)
            for lane in lanes:
                if (free_s := free.get(lane, 0.0)) > begin_s:
                    begin_s = free_s
            over_s = max(begin_s + job.alone_s, job.until_s)
            yield job, over_s
            if not job.dropped:
                for lane in lanes:
                    free[lane] = over_s

    @staticmethod
    def _lanes(job: Transfer) -> tuple[End, ...]:
        """What it takes; of one that goes at once something else than of those that it stops."""
        return job.ends if job.priority >= 0 else tuple(("at once", end) for end in job.ends)

    def _line(self, job: Kind) -> None:
        self._order += 1
        job.order = self._order
        for end in self._lanes(job):
            insort(self._lines.setdefault(end, []), (job.priority, job.order, job))

    def _unline(self, job: Kind) -> None:
        """It is in no line any more."""
        key = job.priority, job.order
        for end in self._lanes(job):
            line = self._lines.get(end, [])
            at = bisect_left(line, key)
            if at < len(line) and line[at][2] is job:
                del line[at]

    def _free(self, jobs: list[Kind]) -> None:
        """These are not under way any more."""
        for job in jobs:
            job.left, job.since_s = self.left(job), self.now_s
            job.due_s, job.speed = math.inf, 0.0
            for end in self._lanes(job):
                del self._now[end]
        if jobs:
            self._share()

    def _begin(self, ends: Iterable[End]) -> None:
        """Begin what waits at these ends and has all of its own free, in order."""
        free = {end for end in ends if end not in self._now}
        lines = [self._lines[end] for end in free if self._lines.get(end)]
        begun: list[Kind] = []
        for _, _, job in heapq.merge(*lines):
            if not free:
                break
            lanes = self._lanes(job)
            if any(end in self._now for end in lanes):
                continue
            job.began_s = job.since_s = self.now_s
            self._now |= dict.fromkeys(lanes, job)
            free.difference_update(lanes)
            begun.append(job)
        for job in begun:
            self._unline(job)
        if begun:
            self._share()

    def _share(self) -> None:
        """Transfers of one link that are under way go as fast as they let each other; those of
        links of their own as alone, or not at all while another one stops them."""
        jobs = self.under_way
        if self.apart:
            for job in jobs:
                stopped = any(("at once", end) in self._now for end in job.ends)
                stands = job.priority >= 0 and stopped
                if stands == (job.speed > 0):
                    self._goes(job, 0.0 if stands else 1 / job.alone_s)
            return
        if not jobs:
            return
        both = len(jobs) > 1
        speeds = [1 / (job.both_s if both and job.both_s else job.alone_s) for job in jobs]
        wanted = sum(speed * job.bytes for speed, job in zip(speeds, jobs, strict=True))
        share = min(1.0, self.far_bandwidth / wanted) if wanted else 1.0
        for speed, job in zip(speeds, jobs, strict=True):
            self._goes(job, share * speed)

    def _goes(self, job: Kind, speed: float) -> None:
        """From now on it moves so fast, or as slowly as what it brings is made."""
        if speed == job.speed:
            return
        job.left, job.since_s = self.left(job), self.now_s
        if not speed:
            job.due_s, job.speed = math.inf, 0.0
            return
        job.due_s = max(self.now_s + job.left / speed, job.until_s)
        job.speed = job.left / (job.due_s - self.now_s) if job.due_s > self.now_s else speed
        heapq.heappush(self._due, (job.due_s, job.order, job))

"""The blocks that the host and a drive have, and all that moves to and from them.

Transfers go over the link from the real block ids of both ends (`policies.transfers.transfer`),
one at a time in each direction (`policies.transfers.kv_link`). What the host stores is written
to the drive as well; what only the drive has goes to the host first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.engines.connector import Match
from policies.engines.host_memory import HostMemory
from policies.requests.requests import IntArray
from policies.transfers.eviction import BlockKey
from policies.transfers.fabric import Links
from policies.transfers.hidden_states import Projections, Work
from policies.transfers.kv_link import IN, OUT, KvLink, Transfer
from policies.transfers.tier_figures import TierFigures
from policies.transfers.tier_links import TierBlocks, TierLinks
from policies.transfers.tier_options import TiersSpec
from policies.transfers.tier_pool import TierPool


class Store(NamedTuple):
    """Blocks on their way to the host, or from it to the drive (request -1)."""

    request: int
    keys: tuple[BlockKey, ...]


class TierLoad(NamedTuple):
    """Blocks on their way to a request, or to the host first (`rest`: how it goes on)."""

    request: int
    keys: tuple[BlockKey, ...]
    rest: Transfer | None = None


@dataclass(frozen=True)
class TierPlan(Match):
    """What a request would load, in these blocks, of which some are on the drive only."""

    parts: tuple[TierBlocks, ...] = ()
    cold: tuple[BlockKey, ...] = ()

    @property
    def keys(self) -> tuple[BlockKey, ...]:
        """Of all parts."""
        return tuple(key for part in self.parts for key in part.keys)


class TierStore:
    """The host, the drive and their links, of one replica of `cards` cards."""

    def __init__(self, spec: TiersSpec, links: TierLinks, cards: int, of: Links) -> None:
        """of: the links of the replica. Raises DescriptionError for tiers that hold no block."""
        self._spec, self.links, size = spec, links, links.block_bytes
        self.block = links.block
        self._full = [at for at, group in enumerate(links.groups) if group.window is None]
        self.host = TierPool(
            _blocks("host.cpu_bytes_to_use", spec.host.cpu_bytes_to_use, size),
            spec.host.eviction_policy,
        )
        dram = spec.host.dram
        far_bandwidth = dram.bandwidth if isinstance(dram, HostMemory) else math.inf
        self.queue = of.host(far_bandwidth / cards)
        self.projections = Projections(self.queue)
        self.drive: TierPool | None = None
        self.drive_queue = of.drive
        if spec.ssd is not None:
            self.drive = TierPool(
                _blocks("ssd.bytes", spec.ssd.bytes, size), spec.ssd.eviction_policy
            )
        self.coming: Counter[BlockKey] = Counter()
        """Blocks on their way to requests."""
        self.loads: dict[int, Transfer] = {}
        """Transfers to requests that wait for them."""
        self._stores: dict[int, set[Transfer]] = {}
        self._missing: dict[int, tuple[BlockKey, ...]] = {}
        self._asked: Counter[BlockKey] = Counter()
        self._fails: list[float] = []
        self.loaded: list[int] = []
        """Requests whose KV has come since somebody took them from here."""
        self.failed: list[int] = []
        """The same of those whose KV will not come."""
        self.stored: list[int] = []
        """The same of those whose stores are all done."""
        self.mark()

    # time

    @property
    def due_s(self) -> float:
        """When the next transfer arrives, or the host fails; inf: never."""
        return min(self.queue.due_s, self.drive_queue.due_s, *self._fails[:1])

    def until(self, due_s: float) -> None:
        """All that happens up to then, which is not after `due_s` of now."""
        for queue in (self.queue, self.drive_queue):
            queue.until(due_s)
        if self._fails and self._fails[0] <= due_s:
            del self._fails[0]
            self._fail()

    def project(self) -> None:
        """What is projected by now is there."""
        for request, keys in self.projections.projected():
            self._ready(request, keys)

    def mark(self) -> None:
        """The warm-up is over: what was counted before does not count."""
        self.counted = TierFigures()
        self.host.evicted = 0

    # what there is

    def keys_of(self, keys: Sequence[BlockKey]) -> Sequence[BlockKey]:
        """Those of all groups of layers, from those of the first."""
        groups = range(len(self.links.groups))
        if len(groups) == 1:
            return keys
        return [_of_group(key, group) for key in keys for group in groups]

    def matched(self, keys: Sequence[BlockKey], first: int) -> int:
        """How many blocks of a text, from its beginning, it is known up to, if the device has the
        first ones: the most for which the tiers have all blocks of layers that keep all, and of
        those with a window all that the next token attends to."""
        there = [first + self._there(keys[first:], group) for group in self._full]
        most = min(there, default=len(keys))
        near = [group for group in range(len(self.links.groups)) if group not in self._full]
        if not near:
            return most
        has = {
            group: np.array(
                [self._is_there(_of_group(key, group)) for key in keys[:most]], np.bool_
            )
            for group in near
        }
        for end in range(most, first, -1):
            if all(has[group][max(self._begin(group, end), first) : end].all() for group in near):
                return end
        return first

    def parts(self, keys: Sequence[BlockKey], first: int, end: int) -> tuple[TierBlocks, ...]:
        """Blocks `first` to `end` of a text that a request needs from the tiers."""
        found = []
        for group in range(len(self.links.groups)):
            begin = max(first, self._begin(group, end))
            chosen = tuple(_of_group(key, group) for key in keys[begin:end])
            found.append(TierBlocks(group, begin, chosen))
        return tuple(found)

    def cold(self, parts: Sequence[TierBlocks]) -> tuple[BlockKey, ...]:
        """Those that are on the drive only."""
        return tuple(
            key for part in parts for key in part.keys if not self.host.ready(key)
        )  # fmt: skip

    def _is_there(self, key: BlockKey) -> bool:
        if self.host.ready(key):
            return True
        return self.drive is not None and self.drive.ready(key) and key not in self.host

    def _there(self, keys: Sequence[BlockKey], group: int) -> int:
        """How many of the first of these blocks the tiers have."""
        for at, key in enumerate(keys):
            if not self._is_there(_of_group(key, group)):
                return at
        return len(keys)

    def _begin(self, group: int, end: int) -> int:
        """The first block that the token behind block `end` needs of a group."""
        return self.links.groups[group].needs_from(end * self.block) // self.block

    def load_s(self, plan: TierPlan) -> float:
        """How long a planned load takes from now on."""
        load_s = self.queue.wait_s(IN) + self.links.host_s(len(plan.keys), IN)
        if plan.cold:
            load_s += self.drive_queue.wait_s(IN) + self.links.drive_s(len(plan.cold))
        return load_s

    def accessed(self, keys: Sequence[BlockKey]) -> None:
        """A request with these blocks was admitted."""
        if self._spec.host.store_threshold:
            self._asked.update(keys)
        self.host.accessed(keys)
        if self.drive is not None:
            self.drive.accessed(keys)

    # what moves

    def load(self, request: int, plan: TierPlan, work: Work | None) -> None:
        """Put the transfer of what was planned, to the blocks that the request has now. work: of
        the cores, where hidden states come."""
        fits = self.host.put(plan.cold, plan.keys)
        assert fits, "the plan says so"
        cold = set(plan.cold)
        self.host.use([key for key in plan.keys if key not in cold])
        read = len({number for _, number in plan.cold}) * self.block
        self.counted.tokens["host"] += plan.end - plan.start - read
        self.counted.tokens["ssd"] += read
        self.coming.update(plan.keys)
        if work is not None:
            self.projections.put(request, work)
        host, links = self.host, self.links
        parts = [(part, _ids(host, part.keys)) for part in plan.parts]
        asked = TierLoad(request, plan.keys)
        if not plan.cold:
            job = links.loading(request, plan.start, parts, asked, IN)
            self.loads[request] = job
            self._put(self.queue, job)
            return
        assert self.drive is not None
        self.drive.use(plan.cold)
        job = links.loading(request, plan.start, parts, asked, IN)
        ends = _ids(self.drive, plan.cold), _ids(host, plan.cold)
        first = links.over_drive(IN, 0, *ends, TierLoad(request, plan.cold, job))
        self.loads[request] = first
        self._put(self.drive_queue, first)

    def store(self, request: int, keys: Sequence[BlockKey], has: int, ended: bool) -> bool:
        """Put the transfer of what the host has not of these blocks, the first of a resident
        request which has stored `has` tokens; whether it has to keep its memory for this, or an
        earlier one. Of layers with a window as much goes as their window has."""
        least, wanted = self._spec.host.store_threshold, self.keys_of(keys)
        chosen: list[tuple[TierBlocks, list[int]]] = []
        for group, layers in enumerate(self.links.groups):
            begin = layers.needs_from(has) // self.block
            if group >= self.links.kv_groups:  # those there are: behind the last whole block
                begin = len(keys) - 1 if len(keys) == has // self.block else len(keys)
            places = []
            for at, key in enumerate(keys[max(begin, 0) :], max(begin, 0)):
                own = _of_group(key, group)
                if own not in self.host and (not least or self._asked[own] >= least):
                    places.append(at)
            if places:
                part = TierBlocks(group, begin, tuple(_of_group(keys[at], group) for at in places))
                chosen.append((part, places))
        fresh = tuple(key for part, _ in chosen for key in part.keys)
        if fresh and self.host.put(fresh, wanted):
            self.host.accessed(wanted)  # the first block goes last
            parts = [(part, places, _ids(self.host, part.keys)) for part, places in chosen]
            job = self.links.storing(request, parts, 1 - ended, Store(request, fresh), OUT)
            self._stores.setdefault(request, set()).add(job)
            self._put(self.queue, job)
        return bool(self._stores.get(request))

    def moves(self, request: int) -> bool:
        """Whether a transfer to or from a request is under way or in line."""
        return request in self.loads or bool(self._stores.get(request))

    def drop(self, request: int) -> None:
        """A request loses its memory: what was to be stored of it will not come."""
        for job in self._stores.pop(request, ()):
            self.queue.drop(job)
            self.host.lost(job.what.keys)
            self.counted.dropped += 1

    def computed(self, request: int) -> None:
        """One whose load failed has computed it, or has lost its memory."""
        self.coming.subtract(self._missing.pop(request))
        self.coming = +self.coming

    def lose(self) -> None:
        """The card loses all; what the host reads from the drive for it is not wanted either."""
        jobs = self.queue.clear(self.links.way)
        for job in jobs:
            if isinstance(job.what, Store):
                self.host.lost(job.what.keys)
        for job in self.loads.values():
            what: TierLoad = job.what
            if what.rest is not None:
                assert self.drive is not None
                self.drive_queue.drop(job)
                self.drive.leave(what.keys)
                self.host.lost(what.keys)
                jobs.append(job)
                cold, what = set(what.keys), what.rest.what
                self.host.leave([key for key in what.keys if key not in cold])
            else:
                self.host.leave(what.keys)
            self.coming.subtract(what.keys)
        for keys in self.projections.clear():
            self.coming.subtract(keys)
        self.coming = +self.coming
        self.counted.dropped += len(jobs)
        for left in (self.loads, self._stores, self.loaded, self.stored):
            left.clear()

    def empty(self) -> None:
        """Nobody asks for what the tiers have any more, after `lose`: they hold nothing."""
        self.counted.dropped += len(self.drive_queue.clear(self.links.way))
        self.host.clear()
        if self.drive is not None:
            self.drive.clear()

    # its own

    def _put(self, queue: KvLink[Transfer], job: Transfer, at_s: float | None = None) -> None:
        job.on_landed = self._arrived
        queue.put(job, at_s)

    def _arrived(self, job: Transfer, at_s: float) -> None:
        what, counted = job.what, self.counted
        if isinstance(what, TierLoad):
            counted.arrived("load" if what.rest is None else "read", job, at_s)
            if what.rest is not None:
                assert self.drive is not None
                self.drive.leave(what.keys)
                self.host.came(what.keys)
                self.host.use(what.keys)
                self.loads[what.request] = what.rest
                self._put(self.queue, what.rest, at_s)
                return
            self.host.leave(what.keys)
            del self.loads[what.request]
            if self.links.hidden is None:
                self._ready(what.request, what.keys)
            else:
                self.projections.came(what.request, what.keys)
        elif what.request < 0:
            counted.arrived("write", job, at_s)
            assert self.drive is not None
            self.drive.came(what.keys)
            self.host.leave(what.keys)
        else:
            counted.arrived("store", job, at_s)
            self.host.came(what.keys)
            left = self._stores[what.request]
            left.remove(job)
            if not left:
                del self._stores[what.request]
                self.stored.append(what.request)
            self._write(what.keys, at_s)

    def _ready(self, request: int, keys: Sequence[BlockKey]) -> None:
        """The KV of a request is there."""
        self.coming.subtract(keys)
        self.coming = +self.coming
        self.loaded.append(request)

    def fails(self, at_s: float) -> None:
        """The host loses all that it has then."""
        self._fails = sorted([*self._fails, at_s])

    def _fail(self) -> None:
        """The host loses all that it has."""
        way = self.links.way
        jobs = self.queue.clear(way) + self.drive_queue.clear(way)
        self.counted.dropped += len(jobs)
        self.host.clear()
        for job in jobs:
            if job.what.request < 0 and self.drive is not None:
                self.drive.lost(job.what.keys)
            elif isinstance(job.what, TierLoad) and job.what.rest is not None and self.drive:
                self.drive.leave(job.what.keys)
        for request, job in self.loads.items():
            last = job.what.rest or job
            self._missing[request] = last.what.keys
            self.failed.append(request)
            if self.links.hidden is not None:
                self.projections.drop(request)
        self.loads.clear()
        self.stored += self._stores
        self._stores.clear()

    def _write(self, came: Sequence[BlockKey], at_s: float) -> None:
        """Write to the drive what the host has stored and the drive has not."""
        drive = self.drive
        if drive is None:
            return
        keys = tuple(key for key in came if key not in drive)
        if not keys or not drive.put(keys, keys):
            return
        self.host.use(keys)
        ends = _ids(self.host, keys), _ids(drive, keys)
        self._put(self.drive_queue, self.links.over_drive(OUT, 1, *ends, Store(-1, keys)), at_s)


def _of_group(key: BlockKey, group: int) -> BlockKey:
    """The block of a group of layers, from that of the first group."""
    return ((*key[0], group), key[1]) if group else key


def _ids(pool: TierPool, keys: Sequence[BlockKey]) -> IntArray:
    return np.array(pool.ids(keys), np.int64)


def _blocks(name: str, room: int, size: int) -> int:
    """Blocks of `size` bytes in `room`. Raises DescriptionError if there is none."""
    if room < size:
        raise DescriptionError(
            f"serving.tiers.{name}: expected room for a block, {size:,} bytes; got {room:,}"
        )
    return room // size

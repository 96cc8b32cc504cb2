"""The blocks that the host and a drive have, and all that moves to and from them.

Transfers go over the link from the real block ids of both ends (`policies.transfers.transfer`),
one at a time in each direction (`policies.transfers.link_queue`). What the host stores is written
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
from policies.transfers.eviction import BlockKey
from policies.transfers.hidden_states import Projections, Work
from policies.transfers.link_queue import IN, OUT, Job, LinkQueue
from policies.transfers.tier_figures import TierFigures
from policies.transfers.tier_links import TierLinks
from policies.transfers.tier_options import TiersSpec
from policies.transfers.tier_pool import TierPool
from policies.transfers.transfer import Server


class Store(NamedTuple):
    """Blocks on their way to the host, or from it to the drive (request -1)."""

    request: int
    keys: tuple[BlockKey, ...]


class Load(NamedTuple):
    """Blocks on their way to a request, or to the host first (`rest`: how it goes on)."""

    request: int
    keys: tuple[BlockKey, ...]
    rest: Job | None = None


@dataclass(frozen=True)
class Plan(Match):
    """What a request would load, in these blocks, of which some are on the drive only."""

    keys: tuple[BlockKey, ...] = ()
    cold: tuple[BlockKey, ...] = ()


class TierStore:
    """The host, the drive and their links, of one replica of `cards` cards."""

    def __init__(self, spec: TiersSpec, links: TierLinks, cards: int) -> None:
        """Raises DescriptionError for tiers that hold no block."""
        self._spec, self.links, size = spec, links, links.block_bytes
        self.block = links.block
        self.host = TierPool(
            _blocks("host.cpu_bytes_to_use", spec.host.cpu_bytes_to_use, size),
            spec.host.eviction_policy,
        )
        self.queue = LinkQueue(_far_bandwidth(spec.host.dram) / cards)
        self.projections = Projections(self.queue)
        self.drive: TierPool | None = None
        self.drive_queue = LinkQueue()
        if spec.ssd is not None:
            self.drive = TierPool(
                _blocks("ssd.bytes", spec.ssd.bytes, size), spec.ssd.eviction_policy
            )
        self.coming: Counter[BlockKey] = Counter()
        """Blocks on their way to requests."""
        self.loads: dict[int, Job] = {}
        """Transfers to requests that wait for them."""
        self._stores: dict[int, set[Job]] = {}
        self._missing: dict[int, tuple[BlockKey, ...]] = {}
        self._asked: Counter[BlockKey] = Counter()
        self._fails = sorted(spec.host.fails_at_s)
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
        for job in [job for queue in (self.queue, self.drive_queue) for job in queue.until(due_s)]:
            self._arrived(job)
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

    def find(self, keys: Sequence[BlockKey]) -> tuple[list[BlockKey], list[BlockKey]]:
        """(the first of these blocks that the tiers have, those of them on the drive only)."""
        found: list[BlockKey] = []
        cold: list[BlockKey] = []
        for key in keys:
            if not self.host.ready(key):
                if self.drive is None or not self.drive.ready(key) or key in self.host:
                    break
                cold.append(key)
            found.append(key)
        return found, cold

    def load_s(self, plan: Plan) -> float:
        """How long a planned load takes from now on."""
        load_s = self.queue.wait_s(IN) + self.links.host_s(len(plan.keys))
        if plan.cold:
            load_s += self.drive_queue.wait_s(IN) + self.links.drive_s(len(plan.cold))
        return load_s

    def asked(self, keys: Sequence[BlockKey]) -> None:
        """A request with these blocks was admitted."""
        if self._spec.host.store_threshold:
            self._asked.update(keys)
        self.host.asked(keys)
        if self.drive is not None:
            self.drive.asked(keys)

    # what moves

    def load(self, request: int, plan: Plan, work: Work | None) -> None:
        """Put the transfer of what was planned, to the blocks that the request has now. work: of
        the cores, where hidden states come."""
        fits = self.host.put(plan.cold, plan.keys)
        assert fits, "the plan says so"
        cold = set(plan.cold)
        self.host.use([key for key in plan.keys if key not in cold])
        self.counted.tokens["host"] += plan.end - plan.start - len(plan.cold) * self.block
        self.counted.tokens["ssd"] += len(plan.cold) * self.block
        self.coming.update(plan.keys)
        if work is not None:
            self.projections.put(request, work)
        first = plan.start // self.block * self.block
        links, asked = self.links, Load(request, plan.keys)
        ends = (
            self._end(self.host, plan.keys),
            links.near(links.table(request, first, plan.end)),
        )
        size, skip = plan.end - first, plan.start - first
        job = links.job(IN, 0, links.host, ends, size, asked, skip)
        if not plan.cold:
            self.loads[request] = job
            self.queue.put(job)
            return
        assert self.drive is not None
        self.drive.use(plan.cold)
        ends = self._end(self.drive, plan.cold), self._end(self.host, plan.cold)
        size = len(plan.cold) * self.block
        read = links.job(IN, 0, links.drive, ends, size, Load(request, plan.cold, job))
        self.loads[request] = read
        self.drive_queue.put(read)

    def store(self, request: int, keys: Sequence[BlockKey], ended: bool) -> bool:
        """Put the transfer of what the host has not of these blocks, the first of a resident
        request; whether it has to keep its memory for this, or an earlier one."""
        least = self._spec.host.store_threshold
        places = [
            at for at, key in enumerate(keys)
            if key not in self.host and (not least or self._asked[key] >= least)
        ]  # fmt: skip
        chosen = tuple(keys[at] for at in places)
        if chosen and self.host.put(chosen, keys):
            self.host.asked(keys)  # the first block goes last
            links, size = self.links, len(chosen) * self.block
            table = links.table(request, 0, len(keys) * self.block)
            table = table.reshape(-1, self.block // links.near_block)
            ends = links.near(table[places].ravel()), self._end(self.host, chosen)
            job = links.job(OUT, 1 - ended, links.host, ends, size, Store(request, chosen))
            self._stores.setdefault(request, set()).add(job)
            self.queue.put(job)
        return bool(self._stores.get(request))

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
        jobs = self.queue.clear()
        for job in jobs:
            if isinstance(job.what, Store):
                self.host.lost(job.what.keys)
        for job in self.loads.values():
            what: Load = job.what
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

    # its own

    def _end(self, pool: TierPool, keys: Sequence[BlockKey]) -> Server:
        """Where a tier has these blocks."""
        return self.links.far(np.array(pool.ids(keys), np.int64))

    def _arrived(self, job: Job) -> None:
        what, counted = job.what, self.counted
        if isinstance(what, Load):
            counted.arrived("load" if what.rest is None else "read", job, self.queue.now_s)
            if what.rest is not None:
                assert self.drive is not None
                self.drive.leave(what.keys)
                self.host.came(what.keys)
                self.host.use(what.keys)
                self.loads[what.request] = what.rest
                self.queue.put(what.rest)
                return
            self.host.leave(what.keys)
            del self.loads[what.request]
            if self.links.hidden is None:
                self._ready(what.request, what.keys)
            else:
                self.projections.came(what.request, what.keys)
        elif what.request < 0:
            counted.arrived("write", job, self.queue.now_s)
            assert self.drive is not None
            self.drive.came(what.keys)
            self.host.leave(what.keys)
        else:
            counted.arrived("store", job, self.queue.now_s)
            self.host.came(what.keys)
            left = self._stores[what.request]
            left.remove(job)
            if not left:
                del self._stores[what.request]
                self.stored.append(what.request)
            self._write(what.keys)

    def _ready(self, request: int, keys: Sequence[BlockKey]) -> None:
        """The KV of a request is there."""
        self.coming.subtract(keys)
        self.coming = +self.coming
        self.loaded.append(request)

    def _fail(self) -> None:
        """The host loses all that it has."""
        jobs = self.queue.clear() + self.drive_queue.clear()
        self.counted.dropped += len(jobs)
        self.host.clear()
        for job in jobs:
            if job.what.request < 0 and self.drive is not None:
                self.drive.lost(job.what.keys)
            elif isinstance(job.what, Load) and job.what.rest is not None and self.drive:
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

    def _write(self, came: Sequence[BlockKey]) -> None:
        """Write to the drive what the host has stored and the drive has not."""
        drive = self.drive
        if drive is None:
            return
        keys = tuple(key for key in came if key not in drive)
        if not keys or not drive.put(keys, keys):
            return
        self.host.use(keys)
        links, size = self.links, len(keys) * self.block
        ends, stored = (self._end(self.host, keys), self._end(drive, keys)), Store(-1, keys)
        self.drive_queue.put(links.job(OUT, 1, links.drive, ends, size, stored))


def _blocks(name: str, room: int, size: int) -> int:
    """Blocks of `size` bytes in `room`. Raises DescriptionError if there is none."""
    if room < size:
        raise DescriptionError(
            f"serving.tiers.{name}: expected room for a block, {size:,} bytes; got {room:,}"
        )
    return room // size


def _far_bandwidth(dram: HostMemory | str | None) -> float:
    """Bytes a second of the host's DRAM; inf where it is not described."""
    if not isinstance(dram, HostMemory):
        return math.inf
    return dram.bandwidth

"""A tiered KV cache, or of hidden states (`policies.transfers.hidden_states`): blocks of prompts
go to the host, and to a drive, and come back when a request begins with them and the device has
lost them.

The reference design is vLLM's `OffloadingConnector`. Full blocks of a prompt are stored when its
prefill is done, those that the tier has not; a request that is admitted finds what the device has,
then what the host has behind it, in whole blocks of the tier. What is on its way to one request
another waits for. Transfers go over the link from the real block ids of both ends
(`policies.transfers.transfer`), one at a time in each direction
(`policies.transfers.link_queue`); stores of a request that has ended, whose memory waits for them,
go first. Deviations: vLLM stores each chunk of a prefill as it is computed; a block that is being
stored does not count as found here.

Contention for the card's DRAM is a share: while so many bytes a second move over the link, the part
of a step that DRAM bounds has as much less bandwidth, times what a byte costs where that is
simulated (`policies.memory.contention`). The host's DRAM limits the rate of both
directions together. A drive takes nothing from the card.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Allocator, Demand
from policies.allocators.block_allocator import BlockAllocator
from policies.allocators.capabilities import Caches
from policies.allocators.kv_layout import Units
from policies.allocators.radix_tree import text_of
from policies.engines.host_memory import HostMemory
from policies.memory.contention import Moving
from policies.memory.step import Efficiency, StepModel, StepTimes
from policies.requests.requests import FloatArray
from policies.transfers.eviction import BlockKey
from policies.transfers.hidden_states import Projections
from policies.transfers.link_queue import IN, OUT, Job, LinkQueue
from policies.transfers.pauses import Pauses, Way
from policies.transfers.pausing import Batch, step_cost
from policies.transfers.refusals import require_blocks
from policies.transfers.restoring import recompute
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


class Plan(NamedTuple):
    """What a request would load: tokens `start` to `end`, in these blocks, of which some are on the
    drive only."""

    start: int
    end: int
    keys: tuple[BlockKey, ...]
    cold: tuple[BlockKey, ...]


class Tiers:
    """The tiers of one replica; see the module. `model`: the shard of a card, of `cards`, each with
    a link of its own to the host, whose DRAM and drive they share. A transfer is of one card, but
    over the drive's link of all."""

    def __init__(
        self, spec: TiersSpec, device: Device, model: TransformerSpec, allocator: Allocator,
        steps: StepModel, cards: int = 1,
    ) -> None:  # fmt: skip
        """Raises DescriptionError for a policy without blocks that are found again, for KV that
        `transfer` refuses, and for tiers that hold no block."""
        policy = allocator.options.name
        require_blocks("serving.tiers", allocator)
        assert isinstance(allocator, BlockAllocator) and isinstance(allocator, Caches)
        if spec.pauses and spec.pauses.policy in ("drop", "least") and not allocator.discards:
            raise DescriptionError(
                f"serving.tiers.pauses: policy {policy} forgets nothing; expected keep or swap"
            )
        self._spec, self._steps, self._layers = spec, steps, model.layers
        self._links = links = TierLinks(spec, device, model, allocator, steps, cards)
        self.block, self._hidden, size = links.block, links.hidden, links.block_bytes
        self._host = TierPool(
            _blocks("host.cpu_bytes_to_use", spec.host.cpu_bytes_to_use, size),
            spec.host.eviction_policy,
        )
        self._queue = LinkQueue(_far_bandwidth(spec.host.dram) / cards)
        self._projections = Projections(self._queue)
        self._drive: TierPool | None = None
        self._drive_queue = LinkQueue()
        if spec.ssd is not None:
            self._drive = TierPool(
                _blocks("ssd.bytes", spec.ssd.bytes, size), spec.ssd.eviction_policy
            )
        self._keys: dict[int, list[BlockKey]] = {}
        self._asked: Counter[BlockKey] = Counter()
        self._stores: dict[int, set[Job]] = {}
        self._loads: dict[int, Job] = {}
        self._coming: Counter[BlockKey] = Counter()
        self._missing: dict[int, tuple[BlockKey, ...]] = {}
        self._declined: dict[int, int] = {}
        """Tokens of requests that are sooner recomputed."""
        self._fails = sorted(spec.host.fails_at_s)
        self._card_fails, self._card_lost = sorted(spec.card_fails_at_s), False
        self._over: dict[int, Way] = {}
        self._loaded: list[int] = []
        self._failed: list[int] = []
        self._stored: list[int] = []
        self.efficiency = Efficiency()
        """That of the last step."""
        self._pauses: Pauses | None = None
        if spec.pauses is not None:
            self._pauses = Pauses(
                spec.pauses.policy, spec.pauses.known,
                lambda batch: step_cost(device, model, steps, self.efficiency, batch),
            )  # fmt: skip
        self.mark()

    # what the replica asks

    def clock(self, now_s: float, steps: bool = False) -> None:
        """It is `now_s`; it never goes back. steps: whether steps ran until then."""
        while (due_s := self._event_s if steps else self.due_s) <= now_s:
            queues, before_s = (self._queue, self._drive_queue), self._queue.now_s
            for job in [job for queue in queues for job in queue.until(due_s)]:
                self._arrived(job)
            if self._fails and self._fails[0] <= due_s:
                del self._fails[0]
                self._fail()
            if self._card_fails and self._card_fails[0] <= due_s:
                del self._card_fails[0]
                self._card_lost = True
            if self._pauses is not None:
                self._over |= self._pauses.over(due_s)
            if not steps:
                self._projections.idle(due_s - before_s)
                self._project()
        before_s = self._queue.now_s
        for queue in (self._queue, self._drive_queue):
            queue.until(now_s)
        if not steps:
            self._projections.idle(now_s - before_s)

    @property
    def due_s(self) -> float:
        """When the next transfer arrives or is projected, host or card fails, or a pause is too
        long; inf: never."""
        return min(self._event_s, self._projections.due_s)

    @property
    def restoring(self) -> bool:
        """Whether the next step projects hidden states."""
        waits = bool(self._loads) or self._projections.due_s < math.inf
        return waits and self._hidden is not None

    @property
    def saves_every(self) -> int:
        """Tokens that a request computes until they leave; 0: all when it ends."""
        return 0 if self._hidden is None or self._spec.host.offload_prompt_only else self.block

    @property
    def _event_s(self) -> float:
        fails = *self._fails[:1], *self._card_fails[:1]
        due_s = min(self._queue.due_s, self._drive_queue.due_s, *fails)
        return due_s if self._pauses is None else min(due_s, self._pauses.due_s)

    def moving(self, allocator: Allocator) -> list[Moving]:
        """What moves to and from the card's memory now, where that is simulated."""
        if self._spec.contention != "simulated":
            return []
        found = []
        for job in self._queue.under_way:
            assert job.near is not None
            size = np.full(len(job.near), self._links.near_block)
            units = Units(job.near * self._links.near_block, size, size)
            rate = self._queue.rate(job.direction)
            found.append(Moving(rate, job.direction == IN, units, 1 - job.left))
        return found

    def stalls(self, times: StepTimes, efficiency: Efficiency, cost: float = 1.0) -> FloatArray:
        """Seconds that each of these steps, which begin now, takes longer: their DRAM gives less
        while the link is busy (`cost` as of `StepTimes.contended`), and layers wait for their KV.
        float64 (steps,)."""
        self.efficiency = efficiency
        waits = np.zeros(len(times.total_s))
        if self._spec.contention and (rate := self._queue.rate()):
            taken = rate * (2 if self._spec.host.dram == "card" else 1)
            waits += times.contended(taken, self._steps.bandwidth * efficiency.attention, cost)
        if self.restoring:
            overlap = self._spec.host.hcache and self._spec.host.hcache.overlap
            idle_s = float(times.memory_s[0]) if overlap else 0.0
            waits[0] += self._projections.step(float(times.total_s[0] + waits[0]), idle_s)
        if self._spec.synchronous:
            waits[0] += max(self._queue.wait_s(IN), self._queue.wait_s(OUT))
        if self._spec.layerwise and self._loads:
            step_s = float(times.total_s[0] + waits[0])
            layers = self._layers
            before = self._queue.wait_s(IN)
            last = list(self._loads.values())[-1]
            own = last.left * last.alone.total_ns / 1e9
            first = max(before - own, 0.0)
            longest = max(first + own / layers + step_s, first + own + step_s / layers)
            waits[0] += max(longest - step_s, 0.0)
        return waits

    def passed(self, end_s: float, times: StepTimes) -> None:
        """Steps with such times ended then."""
        if times.stall_s is not None:
            self._counted.stalled_s += float(times.stall_s.sum())
        self.clock(end_s, steps=True)
        self._projections.stepped()
        self._project()

    def mark(self) -> None:
        """The warm-up is over: what was counted before does not count."""
        self._counted = TierFigures()
        self._done_before_s = self._projections.done_s
        self._host.evicted = 0

    # what the engine asks

    def busy(self, request: int, demand: Demand, total: int) -> bool:
        """Whether a text that begins like a request's is on its way to another."""
        if not self._coming:
            return False
        keys = self._keys_of(request, demand, total)
        return any(key in self._coming for key in keys)

    def plan(self, request: int, demand: Demand, cached: int, limit: int) -> Plan | None:
        """What to load behind the first `cached` tokens of a request, up to token `limit`; None:
        nothing."""
        first = cached // self.block
        keys = self._keys_of(request, demand, limit)
        found: list[BlockKey] = []
        cold: list[BlockKey] = []
        for key in keys[first:]:
            if not self._host.ready(key):
                if self._drive is None or not self._drive.ready(key) or key in self._host:
                    break
                cold.append(key)
            found.append(key)
        start, end = cached, (first + len(found)) * self.block
        if end - start < self.block:
            return None
        plan = Plan(start, end, tuple(found), tuple(cold))
        self._declined.pop(request, None)
        if cold and self._host.victims(cold, keys) is None:
            return None
        load = self._spec.load
        if load == "never" or (load == "sooner" and not self._sooner(plan)):
            self._declined[request] = end - start
            return None
        return plan

    def admitted(self, request: int, demand: Demand, cached: int, total: int) -> None:
        """A request has its memory, `cached` of its `total` tokens found on the device."""
        keys = self._keys_of(request, demand, total)
        self._counted.recomputed += self._declined.pop(request, 0)
        self._counted.tokens["asked"] += total
        self._counted.tokens["device"] += cached
        if self._spec.host.store_threshold:
            self._asked.update(keys)
        self._host.asked(keys)
        if self._drive is not None:
            self._drive.asked(keys)

    def load(self, request: int, plan: Plan) -> None:
        """Put the transfer of what was planned, to the blocks that the request has now."""
        fits = self._host.put(plan.cold, plan.keys)
        assert fits, "the plan says so"
        cold = set(plan.cold)
        self._host.use([key for key in plan.keys if key not in cold])
        self._counted.tokens["host"] += plan.end - plan.start - len(plan.cold) * self.block
        self._counted.tokens["ssd"] += len(plan.cold) * self.block
        self._coming.update(plan.keys)
        if self._hidden is not None:
            work = self._hidden.work(plan.start, plan.end, self.efficiency)
            self._projections.put(request, work)
        first = plan.start // self.block * self.block
        links, asked = self._links, Load(request, plan.keys)
        ends = (
            self._end(self._host, plan.keys),
            links.near(links.table(request, first, plan.end)),
        )
        size, skip = plan.end - first, plan.start - first
        job = links.job(IN, 0, links.host, ends, size, asked, skip)
        if not plan.cold:
            self._loads[request] = job
            self._queue.put(job)
            return
        assert self._drive is not None
        self._drive.use(plan.cold)
        ends = self._end(self._drive, plan.cold), self._end(self._host, plan.cold)
        size = len(plan.cold) * self.block
        read = links.job(IN, 0, links.drive, ends, size, Load(request, plan.cold, job))
        self._loads[request] = read
        self._drive_queue.put(read)

    def pauses(
        self, request: int, demand: Demand, tokens: int, pause_s: float, running: int, held: int
    ) -> Way | Literal["end"] | None:  # fmt: skip
        """What to do with what a request has stored, whose session pauses for so long (nan: is
        over) beside `running` requests with `held` tokens; None: as without pauses."""
        if self._pauses is None:
            return None
        if math.isnan(pause_s):
            return "end"
        keys = self._keys_of(request, demand, tokens)
        out = sum(key not in self._host for key in keys)
        swap_s = self._queue.wait_s(OUT) + self._links.host_s(out)
        swap_s += self._queue.wait_s(IN) + self._links.host_s(len(keys))
        now_s, batch = self._queue.now_s, Batch(running, held)
        return self._pauses.begins(request, now_s, pause_s, tokens, batch, swap_s)

    def resumed(self, request: int) -> None:
        """The session of a request that is kept goes on."""
        if self._pauses is not None:
            self._pauses.ends(request)
            self._over.pop(request, None)

    def overdue(self) -> dict[int, Way]:
        """Requests that are kept no longer, since the last call, and what to do with them."""
        found, self._over = self._over, {}
        return found

    def store(self, request: int, demand: Demand, tokens: int, ended: bool = False) -> bool:
        """Put the transfer of what the host has not of the first `tokens` of a resident request;
        whether it has to keep its memory for this, or an earlier one. With pauses only for a swap:
        whole, when it has ended."""
        if self._pauses is not None and not ended:
            return False
        if self._spec.host.offload_prompt_only and self._pauses is None:
            tokens = min(tokens, demand.prompt)
        keys = self._keys_of(request, demand, tokens)
        least = self._spec.host.store_threshold
        places = [
            at for at, key in enumerate(keys)
            if key not in self._host and (not least or self._asked[key] >= least)
        ]  # fmt: skip
        chosen = tuple(keys[at] for at in places)
        if chosen and self._host.put(chosen, keys):
            self._host.asked(keys)  # the first block goes last
            links, size = self._links, len(chosen) * self.block
            table = links.table(request, 0, tokens).reshape(-1, self.block // links.near_block)
            ends = links.near(table[places].ravel()), self._end(self._host, chosen)
            job = links.job(OUT, 1 - ended, links.host, ends, size, Store(request, chosen))
            self._stores.setdefault(request, set()).add(job)
            self._queue.put(job)
        return bool(self._stores.get(request))

    def drop(self, request: int) -> None:
        """A request loses its memory: what was to be stored of it will not come."""
        for job in self._stores.pop(request, ()):
            self._queue.drop(job)
            self._host.lost(job.what.keys)
            self._counted.dropped += 1

    def loaded(self) -> list[int]:
        """Requests whose KV has come since the last call, in order."""
        found, self._loaded = self._loaded, []
        return found

    def failed(self) -> list[int]:
        """Requests whose KV will not come, since the last call; others wait for what they would
        have found of it until `computed`."""
        found, self._failed = self._failed, []
        return found

    def computed(self, request: int) -> None:
        """Such a request has computed it, or has lost its memory."""
        self._coming.subtract(self._missing.pop(request))
        self._coming = +self._coming

    def stored(self) -> list[int]:
        """Requests whose stores are all done since the last call."""
        found, self._stored = self._stored, []
        return found

    def card_lost(self) -> bool:
        """Whether the card has lost all since the last call: then nothing is on its way any more,
        to it or from it."""
        lost, self._card_lost = self._card_lost, False
        if lost:
            self._lose()
        return lost

    def forget(self, request: int) -> None:
        """A request has ended."""
        self._keys.pop(request, None)

    def figures(self) -> dict[str, Any]:
        """See `TierFigures.figures`; blocks that the host gave up; of HCache the layers by hidden
        states, how the rest, and the seconds that the cores took."""
        found = {**self._counted.figures(), "evicted_blocks": self._host.evicted}
        if self._hidden is not None:
            layers, rest = self._hidden.split[-2:]
            done_s = self._projections.done_s - self._done_before_s
            found["hcache"] = {"layers": layers, "rest": rest, "compute_s": done_s}
        return found if self._pauses is None else {**found, "pauses": self._pauses.ways}

    # its own

    def _keys_of(self, request: int, demand: Demand, tokens: int) -> list[BlockKey]:
        """Keys of the full blocks of the first `tokens` of a request."""
        count = tokens // self.block
        known = self._keys.get(request, [])
        if len(known) < count:
            text = text_of(request, demand)
            lasts = range(self.block - 1, count * self.block, self.block)
            ends = (text[bisect_right(text, at, key=itemgetter(1))][0] for at in lasts)
            known = self._keys[request] = list(zip(ends, range(count), strict=True))
        return known[:count]

    def _end(self, pool: TierPool, keys: Sequence[BlockKey]) -> Server:
        """Where a tier has these blocks."""
        return self._links.far(np.array(pool.ids(keys), np.int64))

    def _sooner(self, plan: Plan) -> bool:
        """Whether a load ends before a lone prefill of the same tokens would."""
        load_s = self._queue.wait_s(IN) + self._links.host_s(len(plan.keys))
        if plan.cold:
            read_s = self._links.drive_s(len(plan.cold))
            load_s += self._drive_queue.wait_s(IN) + read_s
        if self._hidden is not None:
            work = self._hidden.work(plan.start, plan.end, self.efficiency)
            load_s = max(load_s, self._projections.wait_s + sum(work))
        return load_s < recompute(self._steps, plan.end, self.efficiency, plan.start).total_s

    def _arrived(self, job: Job) -> None:
        what, counted = job.what, self._counted
        if isinstance(what, Load):
            counted.arrived("load" if what.rest is None else "read", job, self._queue.now_s)
            if what.rest is not None:
                assert self._drive is not None
                self._drive.leave(what.keys)
                self._host.came(what.keys)
                self._host.use(what.keys)
                self._loads[what.request] = what.rest
                self._queue.put(what.rest)
                return
            self._host.leave(what.keys)
            del self._loads[what.request]
            if self._hidden is None:
                self._ready(what.request, what.keys)
            else:
                self._projections.came(what.request, what.keys)
        elif what.request < 0:
            counted.arrived("write", job, self._queue.now_s)
            assert self._drive is not None
            self._drive.came(what.keys)
            self._host.leave(what.keys)
        else:
            counted.arrived("store", job, self._queue.now_s)
            self._host.came(what.keys)
            left = self._stores[what.request]
            left.remove(job)
            if not left:
                del self._stores[what.request]
                self._stored.append(what.request)
            self._write(what.keys)

    def _project(self) -> None:
        for request, keys in self._projections.projected():
            self._ready(request, keys)

    def _ready(self, request: int, keys: Sequence[BlockKey]) -> None:
        """The KV of a request is there."""
        self._coming.subtract(keys)
        self._coming = +self._coming
        self._loaded.append(request)

    def _fail(self) -> None:
        """The host loses all that it has."""
        jobs = self._queue.clear() + self._drive_queue.clear()
        self._counted.dropped += len(jobs)
        self._host.clear()
        for job in jobs:
            if job.what.request < 0 and self._drive is not None:
                self._drive.lost(job.what.keys)
            elif isinstance(job.what, Load) and job.what.rest is not None and self._drive:
                self._drive.leave(job.what.keys)
        for request, job in self._loads.items():
            last = job.what.rest or job
            self._missing[request] = last.what.keys
            self._failed.append(request)
            if self._hidden is not None:
                self._projections.drop(request)
        self._loads.clear()
        self._stored += self._stores
        self._stores.clear()

    def _lose(self) -> None:
        """The card loses all; what the host reads from the drive for it is not wanted either."""
        jobs = self._queue.clear()
        for job in jobs:
            if isinstance(job.what, Store):
                self._host.lost(job.what.keys)
        for job in self._loads.values():
            what: Load = job.what
            if what.rest is not None:
                assert self._drive is not None
                self._drive_queue.drop(job)
                self._drive.leave(what.keys)
                self._host.lost(what.keys)
                jobs.append(job)
                cold, what = set(what.keys), what.rest.what
                self._host.leave([key for key in what.keys if key not in cold])
            else:
                self._host.leave(what.keys)
            self._coming.subtract(what.keys)
        for keys in self._projections.clear():
            self._coming.subtract(keys)
        self._coming = +self._coming
        self._counted.dropped += len(jobs)
        for left in (self._loads, self._stores, self._loaded, self._stored):
            left.clear()

    def _write(self, came: Sequence[BlockKey]) -> None:
        """Write to the drive what the host has stored and the drive has not."""
        drive = self._drive
        if drive is None:
            return
        keys = tuple(key for key in came if key not in drive)
        if not keys or not drive.put(keys, keys):
            return
        self._host.use(keys)
        links, size = self._links, len(keys) * self.block
        ends, stored = (self._end(self._host, keys), self._end(drive, keys)), Store(-1, keys)
        self._drive_queue.put(links.job(OUT, 1, links.drive, ends, size, stored))


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

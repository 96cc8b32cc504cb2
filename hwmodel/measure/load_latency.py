"""Read latency against bandwidth, as the Mess benchmark draws it (Esmaili-Dokht et al., MICRO 2024,
arXiv 2405.10170).

Extents of one size, each at a random multiple of its size and no two at the same, arrive open loop:
at random, independent times (Poisson), at a rate that is a share of the peak. The latency of a read
runs from its arrival to its last data beat, so that the wait for a full queue counts. The first
point is dependent reads, each of which arrives when the one before has its data. No DMA engine
stands before the channels: neither windows nor the way from an engine and back are in it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernel.address import decode, to_channel
from hwmodel.kernel.timing import lower
from hwmodel.measure.open_loop import Int, OpenLoop
from hwmodel.measure.racm import check_extent
from hwmodel.measure.stream import bursts
from hwmodel.measure.through import Through, silent
from hwmodel.oracle.command_log import CommandLog
from hwmodel.specs.commands import COLUMN_COMMANDS, COMMANDS
from hwmodel.specs.device import Device

SEED = 20261123
"""Places, kinds and gaps of an extent's size are drawn from (SEED, size): the same at every load
and in every mix."""
LARGEST_EXTENT = 64 << 10
BYTES, CHANNEL_BYTES = 1 << 20, 256 << 10
"""Of each run, at least: on one channel, and on each of several."""
ACCESSES, LEAST = 4000, 400
"""Extents of a run: `ACCESSES` where four times these bytes hold them, and at least `LEAST`."""
DEPENDENT = 1000
"""Reads of the first point."""
WARM = 0.2
"""Share of the extents, the first, whose latency does not count."""
NEARLY = 0.98
"""Loads go up to this share of the one that the busiest channel sustains: of uniform places some
channel has the most, the more so the shorter the run."""
KNEE = 2.0
"""At the knee mean latency is so many times the unloaded one: where Mess begins saturation."""
SHARES = (0.5, 0.9, 0.99)
_COLUMN = np.array([COMMANDS.index(name) for name in COLUMN_COMMANDS])
_READ = COMMANDS.index("RD"), COMMANDS.index("RDA")


class Load(NamedTuple):
    """What one offered load showed."""

    offered: float | None
    """Rate of arrivals, as a share of the peak; None: dependent reads."""
    gbps: float
    """Moved from the first arrival that counts to the last."""
    latency_ns: dict[str, float]
    """Of reads, from arrival to the last data beat: mean, p50, p90, p99, max."""
    reads: int
    """Extents read whose latency counts."""
    row_hit_rate: float
    write_latency_ns: dict[str, float] | None = None
    """Of writes, likewise; whoever wrote is free when they are taken. None: of none."""


@dataclass(frozen=True)
class LatencyCurve:
    """Latency over loads of one extent and mix; bandwidths in GB/s."""

    extent_bytes: int
    write_share: float
    """Of the extents."""
    saturated_gbps: float
    """Where extents arrive as fast as the queues take them, summed over the channels."""
    unloaded: Load
    loads: tuple[Load, ...]
    """In rising order, up to `NEARLY`; beyond, the wait grows for as long as extents arrive."""

    @property
    def knee_gbps(self) -> float | None:
        """Bandwidth at which mean latency reaches `KNEE` times the unloaded one, straight between
        the loads on both sides (before the first: none, unloaded); None where it stays below."""
        limit = KNEE * self.unloaded.latency_ns["mean"]
        for before, load in pairwise((self.unloaded._replace(gbps=0.0), *self.loads)):
            below, above = before.latency_ns["mean"], load.latency_ns["mean"]
            if above >= limit:
                return before.gbps + (limit - below) / (above - below) * (load.gbps - before.gbps)
        return None


def latency_curves(
    device: Device, mixes: Sequence[tuple[int, float]], through: Through = silent
) -> list[LatencyCurve]:
    """A curve for each (extent in bytes, share of the extents written, 0 to below 1) on all
    channels of a device; its loads go `through`. Raises ValueError for an extent that is no
    multiple of a burst or above `largest_extent`."""
    for extent, _ in mixes:
        check_extent(device.memory, extent, largest_extent(device))
    streams = [_Stream(device, extent, share) for extent, share in mixes]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # the kernels hold no lock
        first = {stream.extent: stream for stream in streams}
        unloaded = dict(zip(first, pool.map(_Stream.dependent, first.values()), strict=True))
        saturated = list(pool.map(_Stream.saturated_gbps, streams))
        asked = [
            (stream, share)
            for stream, (_, busiest) in zip(streams, saturated, strict=True)
            for share in offered_shares(busiest / device.peak_gbps)
        ]
        loads = pool.map(lambda one: one[0].at(one[1]), asked)
        found = list(through(loads, len(asked)))
    return [
        LatencyCurve(
            stream.extent, stream.write_share, most, unloaded[stream.extent],
            tuple(load for (of, _), load in zip(asked, found, strict=True) if of is stream),
        )
        for stream, (most, _) in zip(streams, saturated, strict=True)
    ]  # fmt: skip


def largest_extent(device: Device) -> int:
    """Bytes of the longest extent of which a device holds enough for a run."""
    return min(LARGEST_EXTENT, device.capacity_bytes // LEAST)


def offered_shares(saturated: float) -> list[float]:
    """Loads, in whole percents of the peak: every fifth, and each of the last five up to
    `NEARLY` times the `saturated` share."""
    last = int(100 * NEARLY * saturated)
    return [
        percent / 100 for percent in range(1, last + 1) if not percent % 5 or percent > last - 5
    ]


class _Stream:
    """The extents of a curve, cut into the bursts of each channel. Arrays of shape (n,) count
    extents, those of shape (b,) bursts, extent by extent."""

    def __init__(self, device: Device, extent: int, write_share: float) -> None:
        self.device, self.extent, self.write_share = device, extent, write_share
        memory, burst = device.memory, device.memory.organisation.burst_bytes
        least = max(BYTES, CHANNEL_BYTES * device.channels)
        count = max(LEAST, min(max(least // extent, ACCESSES), 4 * least // extent))
        slots = device.capacity_bytes // extent
        rng = np.random.Generator(np.random.PCG64([SEED, extent]))
        start = rng.choice(slots, min(count, slots), replace=False).astype(np.int64) * extent
        self.count = len(start)
        self.written = rng.random(self.count) < write_share
        self.warm = int(WARM * self.count)
        arrival = np.cumsum(rng.exponential(size=self.count))
        counted = (arrival[-1] - arrival[self.warm]) / (self.count - 1 - self.warm)
        self.arrival = arrival / counted  # in mean gaps of the extents that count
        self.per = extent // burst
        channel, self.local = to_channel(device, bursts(start, extent, burst))
        self.kind = np.repeat(self.written, self.per).astype(np.int64)
        order = np.argsort(channel, kind="stable")
        edges = np.searchsorted(channel[order], np.arange(device.channels + 1))
        self.parts = [order[a:b] for a, b in pairwise(edges)]
        self.channel = channel
        bank, row, column = decode(memory, self.local)
        key = (bank * memory.organisation.rows + row) * memory.organisation.columns + column
        self.sorted = [part[np.argsort(key[part])] for part in self.parts]

    def dependent(self) -> Load:
        """Reads one after another, of the first extents."""
        run = OpenLoop(self.device.memory, self.device.channels, threads=1)
        latency, now = [], 0
        for first in range(0, min(DEPENDENT, self.count) * self.per, self.per):
            channel = self.channel[first : first + self.per]
            local = self.local[first : first + self.per]
            asked = np.unique(channel)
            run.states["stream_closed"][asked] = 0
            for one in asked.tolist():
                mine = local[channel == one]
                run.feed(one, mine, np.zeros_like(mine), np.full_like(mine, now))
                run.finish(one)
            end = int(run.states["end"][asked].max())
            latency.append(end - now)
            now = end
        ns = self.device.memory.tick_clock.ns_of_ticks
        gbps = len(latency) * self.extent / ns(now)
        return self._load(None, gbps, np.array(latency), run)

    def saturated_gbps(self) -> tuple[float, float]:
        """GB/s where every channel takes its bursts as fast as its queues allow: of all channels
        together, and of all as long as the busiest works."""
        run = OpenLoop(self.device.memory, self.device.channels, threads=1)
        run.feed_all((i, self.local[part], self.kind[part], None) for i, part in self._asked())
        run.finish()
        ns = self.device.memory.tick_clock.ns_of_ticks(1)
        busy = run.states["bytes"] > 0
        each = run.states["bytes"][busy] / (run.states["end"][busy] * ns)
        return float(each.sum()), run.total("bytes") / (run.end_tick * ns)

    def at(self, offered: float) -> Load:
        """The load at which extents arrive at a share of the peak."""
        memory, tick_ns = self.device.memory, self.device.memory.tick_clock.ns_of_ticks(1)
        gap_ns = self.extent / (offered * self.device.peak_gbps)
        arrival = (self.arrival * (gap_ns / tick_ns)).astype(np.int64)
        of_burst = np.repeat(arrival, self.per)
        done = _Ends(self.device)
        run = OpenLoop(memory, self.device.channels, done.add)
        run.feed_all(
            (i, self.local[part], self.kind[part], of_burst[part]) for i, part in self._asked()
        )
        run.finish()
        end = np.empty_like(of_burst)
        for i, part in enumerate(self.sorted):
            end[part] = done.by_place(i)
        warm = self.warm
        begin, until = arrival[warm], arrival[-1]
        moved = np.count_nonzero((end > begin) & (end <= until)) * self.extent // self.per
        latency = (end.reshape(-1, self.per).max(axis=1) - arrival)[warm:]
        gbps = moved / ((until - begin) * tick_ns)
        written = self.written[warm:]
        found = self._load(offered, gbps, latency[~written], run)
        if not written.any():
            return found
        return found._replace(write_latency_ns=_quantiles(latency[written], tick_ns))

    def _asked(self) -> list[tuple[int, Int]]:
        return [(i, part) for i, part in enumerate(self.parts) if len(part)]

    def _load(self, offered: float | None, gbps: float, latency: Int, run: OpenLoop) -> Load:
        tick_ns = self.device.memory.tick_clock.ns_of_ticks(1)
        hits, misses, conflicts = (run.total(name) for name in ("hits", "misses", "conflicts"))
        return Load(
            offered, float(gbps), _quantiles(latency, tick_ns), len(latency),
            hits / (hits + misses + conflicts),
        )  # fmt: skip


def _quantiles(latency: Int, tick_ns: float) -> dict[str, float]:
    """Mean, p50, p90, p99 and max of latencies in ticks, ns."""
    ends = np.quantile(latency, SHARES, method="inverted_cdf") * tick_ns
    quantiles = {f"p{100 * q:.0f}": float(ns) for q, ns in zip(SHARES, ends, strict=True)}
    mean, most = float(latency.mean()) * tick_ns, float(latency.max()) * tick_ns
    return {"mean": mean, **quantiles, "max": most}


class _Ends:
    """When the data of each burst ends, read off the command log; every place is asked for once."""

    def __init__(self, device: Device) -> None:
        self._organisation = device.memory.organisation
        self._data_end: Int = lower(device.memory)[0]["data_end"]
        self._found: list[list[tuple[Int, Int]]] = [[] for _ in range(device.channels)]

    def add(self, channel: int, log: CommandLog) -> None:
        """Take what a channel logged."""
        o, log = self._organisation, log.take(np.isin(log.command, _COLUMN))
        bank = (log.pseudochannel * o.ranks + log.rank) * o.stacks + log.stack
        bank = (bank * o.bankgroups + log.bankgroup) * o.banks_per_group + log.bank
        end = log.tick + self._data_end[np.isin(log.command, _READ, invert=True).astype(int)]
        self._found[channel].append(((bank * o.rows + log.row) * o.columns + log.column, end))

    def by_place(self, channel: int) -> NDArray[np.int64]:
        """Ticks at which data end, in rising order of (bank, row, column)."""
        if not self._found[channel]:
            return np.zeros(0, np.int64)
        key, end = (np.concatenate(each) for each in zip(*self._found[channel], strict=True))
        return end[np.argsort(key)]

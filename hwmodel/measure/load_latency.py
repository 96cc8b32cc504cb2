"""Read latency against bandwidth, as the Mess benchmark draws it (Esmaili-Dokht et al., MICRO 2024,
arXiv 2405.10170).

Extents of one size, each at a random multiple of its size and no two at the same, arrive open loop:
at random, independent times (Poisson), at a rate that is a share of the peak. The latency of a read
runs from its arrival to its last data beat, so that the wait for a full queue counts. The first
point is dependent reads, each of which arrives when the one before has its data. No DMA engine
stands before the channels: neither windows nor the way from an engine and back are in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hwmodel.kernel.address import to_channel
from hwmodel.kernel.limits import Int
from hwmodel.measure.channels import Channels
from hwmodel.measure.grid import measured
from hwmodel.measure.racm import check_extent
from hwmodel.measure.stream import bursts
from hwmodel.measure.through import Through, silent
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


class LoadPoint(NamedTuple):
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
    unloaded: LoadPoint
    loads: tuple[LoadPoint, ...]
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
    streams = {mix: _Stream(device, *mix) for mix in mixes}
    first = {stream.extent: stream for stream in streams.values()}
    unloaded = measured(lambda extent: first[extent].dependent(), list(first))
    saturated = measured(lambda mix: streams[mix].saturated_gbps(), list(streams))
    asked = [
        (mix, share)
        for mix, (_, busiest) in saturated.items()
        for share in offered_shares(busiest / device.peak_gbps)
    ]
    found = measured(lambda cell: streams[cell[0]].at(cell[1]), asked, through)
    return [
        LatencyCurve(
            *mix, saturated[mix][0], unloaded[mix[0]],
            tuple(load for (of, _), load in found.items() if of == mix),
        )
        for mix in mixes
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
    """The extents of a curve, arrays of shape (n,)."""

    def __init__(self, device: Device, extent: int, write_share: float) -> None:
        self.device, self.extent, self.write_share = device, extent, write_share
        least = max(BYTES, CHANNEL_BYTES * device.channels)
        count = max(LEAST, min(max(least // extent, ACCESSES), 4 * least // extent))
        slots = device.capacity_bytes // extent
        rng = np.random.Generator(np.random.PCG64([SEED, extent]))
        self.start = rng.choice(slots, min(count, slots), replace=False).astype(np.int64) * extent
        self.count = len(self.start)
        self.written = rng.random(self.count) < write_share
        self.warm = int(WARM * self.count)
        arrival = np.cumsum(rng.exponential(size=self.count))
        counted = (arrival[-1] - arrival[self.warm]) / (self.count - 1 - self.warm)
        self.arrival = arrival / counted  # in mean gaps of the extents that count
        self._tick_ns = device.memory.tick_clock.ns_of_ticks(1)

    def dependent(self) -> LoadPoint:
        """Reads one after another, of the first extents."""
        host = Channels(self.device, outstanding=1)
        host.submit(0, self.start[:DEPENDENT], self.extent)
        end = host.drain().tick
        gbps = len(end) * self.extent / (int(end[-1]) * self._tick_ns)
        return self._load(None, gbps, np.diff(end, prepend=0), host)

    def _ends(self, arrival: Int) -> tuple[Channels, Int]:
        """The channels, and when the data of each burst end, (n, bursts of an extent), where
        extents arrive at ticks (n,)."""
        host, burst = Channels(self.device), self.device.memory.organisation.burst_bytes
        many = self.extent // burst
        when, written = np.repeat(arrival, many), np.repeat(self.written, many)
        host.submit(when, bursts(self.start, self.extent, burst), burst, written)
        done = host.drain()
        return host, done.tick[np.argsort(done.tag)].reshape(-1, many)

    def saturated_gbps(self) -> tuple[float, float]:
        """GB/s where every channel takes its bursts as fast as its queues allow: of all channels
        together, and of all as long as the busiest works."""
        _, end = self._ends(np.zeros(self.count, np.int64))
        burst = self.device.memory.organisation.burst_bytes
        channel, _ = to_channel(self.device, bursts(self.start, self.extent, burst))
        moved = np.bincount(channel) * burst
        last = np.zeros(len(moved), np.int64)
        np.maximum.at(last, channel, end.ravel())
        busy = moved > 0
        each = moved[busy] / (last[busy] * self._tick_ns)
        return float(each.sum()), int(moved.sum()) / (int(last.max()) * self._tick_ns)

    def at(self, offered: float) -> LoadPoint:
        """The load at which extents arrive at a share of the peak."""
        gap_ns = self.extent / (offered * self.device.peak_gbps)
        arrival = (self.arrival * (gap_ns / self._tick_ns)).astype(np.int64)
        host, end = self._ends(arrival)
        warm = self.warm
        begin, until = arrival[warm], arrival[-1]
        moved = np.count_nonzero((end > begin) & (end <= until)) * self.extent // end.shape[1]
        latency = (end.max(axis=1) - arrival)[warm:]
        gbps = moved / ((until - begin) * self._tick_ns)
        written = self.written[warm:]
        found = self._load(offered, gbps, latency[~written], host)
        if not written.any():
            return found
        return found._replace(write_latency_ns=_quantiles(latency[written], self._tick_ns))

    def _load(self, offered: float | None, gbps: float, latency: Int, host: Channels) -> LoadPoint:
        quantiles = _quantiles(latency, self._tick_ns)
        return LoadPoint(offered, float(gbps), quantiles, len(latency), host.row_hit_rate)


def _quantiles(latency: Int, tick_ns: float) -> dict[str, float]:
    """Mean, p50, p90, p99 and max of latencies in ticks, ns."""
    ends = np.quantile(latency, SHARES, method="inverted_cdf") * tick_ns
    quantiles = {f"p{100 * q:.0f}": float(ns) for q, ns in zip(SHARES, ends, strict=True)}
    mean, most = float(latency.mean()) * tick_ns, float(latency.max()) * tick_ns
    return {"mean": mean, **quantiles, "max": most}

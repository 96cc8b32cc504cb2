"""Read latency against bandwidth: curves, their knees, and charts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hwmodel.description.description import DescriptionError
from hwmodel.measure.load_latency import (
    DEPENDENT,
    KNEE,
    NEARLY,
    SEED,
    LatencyCurve,
    LoadPoint,
    largest_extent,
    latency_curves,
)
from hwmodel.specs.device import Device, load_device
from sweeps.ask.memory_patterns import extent_bytes
from sweeps.ask.question import DeviceName, Percent, Question, SizeText
from sweeps.run.progress import Progress
from sweeps.run.version import version
from sweeps.sections.chart import Axis, Lines, Series
from sweeps.sections.formats import size_text
from sweeps.sections.section import Block, Grid, Listing, Say, Section

LINE = 64
"""Bytes of a cache line, the extent that Mess reads; of a burst where that is longer."""
EXTENTS = 512, 4096
WRITE_SHARES = 0.0, 0.25, 0.5
"""Curves where neither is asked for: the line in each mix, and reads alone of these extents."""
_SHOWN = ("mean", "p50", "p99", "max")


@dataclass(frozen=True)
class LatencyCurves:
    """The curves of a device."""

    device: Device
    curves: list[LatencyCurve]

    def record(self) -> dict[str, Any]:
        """The result as JSON has it; GB/s, ns, and shares of the peak."""
        device = self.device
        return {
            "device": device.name, "version": version(), "digest": device.digest,
            "channels": device.channels, "peak_gbps": device.peak_gbps, "seed": SEED,
            "knee_factor": KNEE,
            "to_engines_and_back_ns": _ways_ns(device),
            "curves": [
                {
                    "extent_bytes": curve.extent_bytes, "write_share": curve.write_share,
                    "saturated_gbps": curve.saturated_gbps, "knee_gbps": curve.knee_gbps,
                    "unloaded": _load(curve.unloaded, device),
                    "loads": [_load(load, device) for load in curve.loads],
                }
                for curve in self.curves
            ],
        }  # fmt: skip


class LatencyQuestion(Question):
    """Simulate read latency against bandwidth, over loads."""

    former: ClassVar[Mapping[str, str]] = {"--html": "`--save`", "--chart": "`--save`"}
    plugs: ClassVar[bool] = True

    device: DeviceName
    """A shipped accelerator or memory, or a YAML file; of a memory one channel is simulated."""
    extent: SizeText | None = None
    """Contiguous bytes of an access (default: a cache line, 512B and 4KiB)."""
    writes: Percent | None = None
    """Share of the accesses that writes (default: 0, 25 and 50 of the line, 0 of the others)."""

    def answer(self) -> LatencyCurves:
        """Raises DescriptionError for an extent that makes no sense, and where no extent is
        read."""
        device = load_device(self.device, list(self.set))
        writes = None if self.writes is None else self.writes / 100
        if writes is not None and writes >= 1:
            raise DescriptionError(
                "expected below 100 %: of writes no latency is shown", "--writes"
            )
        burst, most = device.memory.organisation.burst_bytes, largest_extent(device)
        if self.extent is None:
            line = max(LINE, burst)
            sizes = [line, *(size for size in EXTENTS if line < size <= most and size % burst == 0)]
        else:
            sizes = [extent_bytes(device, self.extent, most)]
        if writes is not None:
            mixes = [(size, writes) for size in sizes]
        else:
            mixes = [(sizes[0], share) for share in WRITE_SHARES]
            mixes += [(size, WRITE_SHARES[0]) for size in sizes[1:]]
        through = Progress().through("loads")
        return LatencyCurves(device, latency_curves(device, mixes, through))

    def section(self, findings: LatencyCurves) -> Section:
        """Sentences, charts and tables, and what is assumed."""
        device = findings.device
        return Section(
            f"{device.name}: read latency against bandwidth",
            [
                Say(_about(device)),
                *(Say(sentence(curve, device), "verdict") for curve in findings.curves),
                *charts(findings.curves),
                *(_grid(curve, device) for curve in findings.curves),
                *assumptions(device, f"; seed {SEED}"),
            ],
        )


def assumptions(device: Device, more: str = "") -> list[Block]:
    """What a page says of where its numbers come from."""
    title = f"Assumed numbers: {len(device.assumed)}"
    origin = f"bankwise {version()}; descriptions (SHA-256) {device.digest[:12]}{more}."
    return [Section(title, [Listing("", device.assumed), Say(origin)], folded=True)]


def _load(load: LoadPoint, device: Device) -> dict[str, Any]:
    offered = None if load.offered is None else load.offered * device.peak_gbps
    return {
        "offered": load.offered, "offered_gbps": offered, "bandwidth_gbps": load.gbps,
        "utilization": load.gbps / device.peak_gbps, "read_latency_ns": load.latency_ns,
        "write_latency_ns": load.write_latency_ns,
        "reads": load.reads, "row_hit_rate": load.row_hit_rate,
    }  # fmt: skip


def _about(device: Device) -> str:
    over = f"{device.channels} channels" if device.channels > 1 else "one channel"
    text = (
        f"{device.name}, {over}, peak {device.peak_gbps:,.1f} GB/s. Extents at random places arrive"
        " at random times; latency is from arrival to the last data beat. At the knee mean latency"
        f" is {KNEE:g} times that of {DEPENDENT:,} dependent reads. Loads end at"
        f" {NEARLY:.0%} of what the busiest channel sustains."
    )
    if device.accelerator is None:
        return text
    return f"{text} The way from an engine and back, {_ways_ns(device):,.4g} ns, is left out."


def _ways_ns(device: Device) -> float:
    """From an engine to a channel and back; 0 where there are no engines."""
    if device.accelerator is None:
        return 0.0
    return device.accelerator.dma.request_latency + device.accelerator.dma.response_latency


def _mix(curve: LatencyCurve) -> str:
    return f"{100 * curve.write_share:g} % written" if curve.write_share else "reads only"


def sentence(curve: LatencyCurve, device: Device) -> str:
    """Unloaded latency, knee and saturation of a curve in words."""

    def rate(gbps: float) -> str:
        return f"{gbps:,.4g} GB/s ({gbps / device.peak_gbps:.0%} of peak)"

    knee = curve.knee_gbps
    last = (curve.unloaded, *curve.loads)[-1].gbps
    place = (
        f"the knee is above {rate(last)}, the last load"
        if knee is None
        else f"the knee is at {rate(knee)}"
    )
    return (
        f"{size_text(curve.extent_bytes)}, {_mix(curve)}:"
        f" {curve.unloaded.latency_ns['mean']:,.4g} ns unloaded; saturated at"
        f" {rate(curve.saturated_gbps)}; {place}."
    )


def _grid(curve: LatencyCurve, device: Device) -> Grid:
    shown = _SHOWN if curve.write_share else ()
    rows = [
        [
            "one by one" if load.offered is None else f"{load.offered:.0%}",
            f"{load.gbps:,.2f}", *(f"{load.latency_ns[name]:,.1f}" for name in _SHOWN),
            f"{load.row_hit_rate:.0%}",
            *(f"{written[name]:,.1f}" if (written := load.write_latency_ns) else "–"
              for name in shown),
        ]
        for load in (curve.unloaded, *curve.loads)
    ]  # fmt: skip
    heads = ["offered", "GB/s", *(f"{name} ns" for name in _SHOWN), "row hits"]
    heads += [f"write {name} ns" for name in shown]
    return Grid(f"{size_text(curve.extent_bytes)}, {_mix(curve)}", heads, rows)


def charts(curves: list[LatencyCurve]) -> list[Lines]:
    """One curve: its mean and quantiles. Several: mean and p99, by mix and by extent."""
    if len(curves) == 1:
        (curve,) = curves
        title = f"Read latency, {size_text(curve.extent_bytes)}, {_mix(curve)}"
        return [_lines(title, "read latency, ns", {name: (curve, name) for name in _SHOWN})]
    line, reads = curves[0].extent_bytes, curves[0].write_share
    groups = {
        f"{size_text(line)} by mix": {_mix(c): c for c in curves if c.extent_bytes == line},
        f"{_mix(curves[0])}, by extent": {
            size_text(c.extent_bytes): c for c in curves if c.write_share == reads
        },
    }
    return [
        _lines(
            f"{what} read latency: {title}", f"{which} read latency, ns",
            {name: (curve, which) for name, curve in group.items()},
        )
        for title, group in groups.items()
        if len(group) > 1
        for what, which in (("Mean", "mean"), ("p99 of", "p99"))
    ]  # fmt: skip


def _lines(title: str, y: str, shown: dict[str, tuple[LatencyCurve, str]]) -> Lines:
    """Latency over bandwidth; where all have one unloaded latency, the limit of the knee too."""
    series = [
        Series(
            name, [0.0, *(load.gbps for load in curve.loads)],
            [load.latency_ns[which] for load in (curve.unloaded, *curve.loads)],
        )
        for name, (curve, which) in shown.items()
    ]  # fmt: skip
    limits = {KNEE * curve.unloaded.latency_ns["mean"] for curve, _ in shown.values()}
    if len(limits) == 1 and "mean" in {which for _, which in shown.values()}:
        most = max(one.x[-1] for one in series)
        series.append(Series("knee: twice unloaded", [0.0, most], [*limits] * 2))
    note = "At 0: dependent reads."
    return Lines(title, Axis("bandwidth, GB/s"), Axis(y, "log"), series, note)

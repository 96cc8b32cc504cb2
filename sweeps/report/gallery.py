"""The charts of a group of competitors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from hwmodel.measure.student import LEVEL
from sweeps.analyse.figures import (
    COMPUTE,
    GROWING,
    KV_EXTENT,
    KV_RATE,
    KV_SLOTS,
    LIMIT_WORDS,
    LIMITS,
    REFERENCE,
    SLOT_WORDS,
    THROUGHPUT,
    limit_word,
)
from sweeps.analyse.objective import KV_READ
from sweeps.analyse.rows import at
from sweeps.analyse.table import Group, Row
from sweeps.sections.chart import Axis, Bar, Bars, Chart, Lines, Series

PARTS = {
    "weights": "weights", "attention": "KV of decoding", "prefill": "prefill",
    "migration": "migration", "overhead": "overhead", "copy": "copy on write", "swap": "swap",
    "all_reduce": "all-reduce",
}  # fmt: skip
"""Phases of a step, in words."""
_LATENCIES = {
    "ttft_s": ("Time to first token", 1.0, "s"),
    "tpot_s": ("Time per output token", 1000.0, "ms"),
    "latency_s": ("End-to-end latency", 1.0, "s"),
}
_OVER_TIME = {
    "utilization": ("Utilisation over time: stored of what is reserved, %", "stored, %", 100.0),
    "reserved": ("KV memory reserved over time, %", "reserved, %", 100.0),
    "external_fragmentation": (
        "External fragmentation over time, %", "free slots outside the largest hole, %", 100.0
    ),
    "running": ("Requests running over time", "requests running", 1.0),
}  # fmt: skip
_BANKS = {
    "row_hits": "row hit",
    "row_misses": "bank was closed",
    "row_conflicts": "another row open",
}
_ENERGY = "parts_mj_per_token"
_WIDE = 10.0
"""Latencies that span more than this factor are drawn in logarithms."""


_SAME = 0.01
RATES = ("throughput", "reading")
"""Figures that show what is compared."""


def charts(group: Group) -> list[Chart]:
    """What this group's results can show, in the order of the argument; beside its rates nothing in
    which all that compete are the same."""
    found = [replace(chart, figure=make.__name__) for make in _ORDER for chart in make(group)]
    return [each for each in found if each.figure in RATES or not constant(each)]


def constant(chart: Chart) -> bool:
    """Whether a chart says the same of each of two or more, within a hundredth of the largest."""
    match chart:
        case Bars() if chart.parts:
            told = [[*bar.parts] for bar in chart.bars]
        case Bars():
            told = [[bar.value.mean] for bar in chart.bars]
        case Lines(form="quantiles"):
            return False
        case Lines():
            told = [[y] for one in chart.series for y in one.y]
        case _:
            return False
    most = max((abs(value) for each in told for value in each), default=0.0)
    return len(told) > 1 and all(
        max(values) - min(values) <= _SAME * most for values in zip(*told, strict=True)
    )


def throughput(group: Group) -> Iterator[Bars]:
    """The objective, the best first, controls under their competitors."""
    objective = group.objective
    if objective == KV_READ:
        return
    metric, sign = objective.metric, 1 if objective.less else -1
    means = {row.name: row.mean(metric) or 0.0 for row in reversed(group.ordered())}
    means |= {row.name: row.mean(metric) or 0.0 for row in group.main()}
    bars = [
        Bar(row.title, found.mapped(lambda value: objective.scale * value), bool(row.control))
        for row in sorted(group.ordered(), key=lambda row: sign * means[row.name])
        if (found := row.interval(metric)) is not None
    ]
    if bars:
        note = "Of the steady part. " * objective.is_rate
        note += f"Whiskers: {100 * LEVEL:.0f} % intervals of the mean."
        note += " Pale: controls." * any(bar.dim for bar in bars)
        yield Bars(objective.words, bars, note, objective.digits)


def reading(group: Group) -> Iterator[Chart]:
    """The KV read of one batch, where nothing is served: GB/s, and against its extents."""
    if any(row.values(THROUGHPUT) for row in group.rows):
        return
    known = [(row, found) for row in group.main() if (found := row.interval(KV_RATE)) is not None]
    if not known:
        return
    ranked = sorted(known, key=lambda each: -each[1].mean)
    yield Bars("KV read, GB/s", [Bar(row.name, found) for row, found in ranked])
    series = []
    for row, found in known:
        extent = row.mean(KV_EXTENT)
        if extent is not None and math.isfinite(found.half):
            series.append(Series(row.name, [extent], [found.mean], [found.low], [found.high]))
    if series:
        yield Lines(
            "KV-read bandwidth against extent size, GB/s",
            Axis("mean contiguous extent of one layer's K", "bytes"), Axis("KV read, GB/s"),
            series, f"{100 * LEVEL:.0f} % intervals of the mean.", "points",
        )  # fmt: skip


def phases(group: Group) -> Iterator[Chart]:
    """What a step's time goes into, and the share of it in which FLOPs bind."""
    yield from _stacks(
        group, "Step time by phase, %", "phase_share", PARTS,
        "Prefill: what prompt chunks add to reading the weights, and their attention.",
    )  # fmt: skip
    bars = [
        Bar(row.name, found.mapped(lambda share: 100 * share))
        for row in group.main()
        if (found := row.interval(COMPUTE)) is not None
    ]
    if bars:
        note = "The rest waits for bytes, or is overhead."
        yield Bars("Compute-bound step time: FLOPs take longer than bytes, %", bars, note)


def limits(group: Group) -> Iterator[Chart]:
    """What kept more requests from running, by time."""
    names = list(dict.fromkeys(name for row in group.main() for name in row.limits()))
    names = [*(n for n in LIMIT_WORDS if n in names), *(n for n in names if n not in LIMIT_WORDS)]
    yield from _stacks(group, "What limited the batch, % of time", LIMITS,
                       {name: limit_word(name) for name in names})  # fmt: skip


def slots(group: Group) -> Iterator[Chart]:
    """Where KV memory goes while it is the limit; references too."""
    rows = [*group.main(), *group.control(REFERENCE).values()]
    yield from _stacks(
        replace(group, rows=[Row(row.name, "", row.replications) for row in rows]),
        "KV memory while it limits the batch, % of its slots", KV_SLOTS, SLOT_WORDS,
        "Holes: what the next requests in line would reserve if all free slots were one run. "
        "Waiting for the head of the line: the rest that is free.",
    )  # fmt: skip


def latencies(group: Group) -> Iterator[Chart]:
    """Cumulative distributions: the mean of the replications' quantile functions."""
    for name, (title, scale, unit) in _LATENCIES.items():
        values = {
            row.name: [scale * value for value in points]
            for row in group.main()
            if not (row.overloaded and name in GROWING) and (points := _quantiles(row, name))
        }
        if values:
            everything = [value for points in values.values() for value in points if value > 0]
            wide = bool(everything) and max(everything) > _WIDE * min(everything)
            axis = Axis(f"{title[0].lower()}{title[1:]}, {unit}", "log" if wide else "linear")
            shares = [i / (len(points) - 1) for points in [next(iter(values.values()))]
                      for i in range(len(points))]  # fmt: skip
            up, part = Axis("share of requests, %"), [100 * share for share in shares]
            series = [Series(name, x, part) for name, x in values.items()]
            yield Lines(f"{title}, cumulative, {unit}", axis, up, series, form="quantiles")


def _quantiles(row: Row, name: str) -> list[float]:
    """Mean over replications of a quantile function."""
    found = [
        points
        for metrics in row.raw.values()
        if numbers(points := at(metrics, "quantiles", name)) and points
    ]
    if not found or len({len(points) for points in found}) > 1:
        return []
    return [math.fsum(values) / len(found) for values in zip(*found, strict=True)]


def over_time(group: Group) -> Iterator[Chart]:
    """Of the first replication: shares of memory, and the batch."""
    for name, (title, label, scale) in _OVER_TIME.items():
        series = [
            Series(row.name, *points)
            for row in group.main()
            if (points := _timed(row, name, scale))[0]
        ]
        if series:
            note = _warm_note(group) if name == "utilization" else ""
            yield Lines(title, Axis("simulated time, s"), Axis(label), series, note)


def _timed(row: Row, name: str, scale: float) -> tuple[list[float], list[float]]:
    width, values = (at(_first(row), "over_time", key) for key in ("width_s", name))
    if not isinstance(width, (int, float)) or not isinstance(values, list):
        return [], []
    known = [(i, v) for i, v in enumerate(values) if isinstance(v, (int, float))]
    return [(i + 0.5) * width for i, _ in known], [scale * value for _, value in known]


def _warm_note(group: Group) -> str:
    times = []
    for row in group.main():
        warm = at(_first(row), "over_time", "warm_s")
        if isinstance(warm, (int, float)) and warm > 0:
            times.append(f"{row.name} {warm:,.4g} s")
    return f"First replication. Warm-up ends at: {', '.join(times)}." if times else ""


def bandwidth(group: Group) -> Iterator[Chart]:
    """KV-read bandwidth that probes found, against the extents they found it at."""
    series = []
    for row in group.main():
        points = sorted(
            tuple(point)
            for metrics in row.raw.values()
            for point in at(metrics, "memory", "phases", "attention", "by_extent") or ()
            if numbers(point) and len(point) == 2
        )
        if points:
            sizes, rates = zip(*points, strict=True)
            series.append(Series(row.name, sizes, rates))
    if series:
        yield Lines(
            "KV-read bandwidth against extent size, GB/s",
            Axis("mean contiguous extent of one layer's K", "bytes"), Axis("KV read, GB/s"),
            series, "Each point is a window of a real step, simulated cycle by cycle.", "points",
        )  # fmt: skip


def banks(group: Group) -> Iterator[Chart]:
    """Row hits and activations of the KV reads."""
    where = "memory.phases.attention.banks"
    yield from _stacks(group, "KV reads: what they met in the bank, %", where, _BANKS)
    bars = [
        Bar(row.name, found)
        for row in group.main()
        if (found := row.interval(f"{where}.activations_per_kib")) is not None
    ]
    if bars:
        shares = [(row.name, row.mean(f"{where}.open_share")) for row in group.main()]
        told = ", ".join(f"{name} {100 * s:.0f} %" for name, s in shares if s is not None)
        yield Bars("KV reads: activations per KiB", bars, f"Time with a bank open: {told}.", 2)


def energy(group: Group) -> Iterator[Chart]:
    """DRAM energy of an output token by part."""
    prefix = f"energy.{_ENERGY}."
    names = list(dict.fromkeys(
        name.removeprefix(prefix) for row in group.main() for found in row.replications.values()
        for name in found if name.startswith(prefix)
    ))  # fmt: skip
    words = {name: name.replace("_", ", ") for name in names}
    chart = _stacks(group, "DRAM energy of an output token, mJ", f"energy.{_ENERGY}", words,
                    share=False)  # fmt: skip
    yield from chart


def buckets(group: Group) -> Iterator[Chart]:
    """Bucket bounds as they drift, over the lengths that were realised."""
    for row in group.main():
        rows = [r for r in at(_first(row), "policy", "over_time") or () if isinstance(r, dict)]
        rows = [r for r in rows if numbers(r.get("lengths")) and numbers(r.get("bounds"))]
        if not rows:
            continue
        ended = [1000.0 * (i + 1) for i in range(len(rows))]
        low, middle, high = ([float(r["lengths"][i]) for r in rows] for i in (0, 2, -1))
        series = [
            Series("lengths, 10 to 90 %", ended, middle, low, high, band=True),
            Series("median length", ended, middle),
        ]
        for i in range(max(len(r["bounds"]) for r in rows)):
            known = [
                (x, r["bounds"][i])
                for x, r in zip(ended, rows, strict=True)
                if i < len(r["bounds"])
            ]
            places, bounds = zip(*known, strict=True)
            series.append(Series(f"bound {i + 1}", places, bounds))
        yield Lines(
            f"{row.name}: bucket bounds against realised lengths, tokens",
            Axis("requests that ended", zero=False), Axis("tokens"), series,
            "First replication; a row for each 1,000 requests.",
        )  # fmt: skip


def _stacks(
    group: Group, title: str, metric: str, words: dict[str, str], note: str = "",
    share: bool = True,
) -> Iterator[Bars]:  # fmt: skip
    stacks = {}
    for row in group.main():
        values = [row.mean(f"{metric}.{name}") or 0.0 for name in words]
        if math.fsum(values) > 0:
            stacks[row.name] = values
    if stacks:
        yield Bars.stacked(title, list(words.values()), stacks, note, share, 1)


def _first(row: Row) -> dict[str, Any]:
    return row.raw[min(row.raw)] if row.raw else {}


def numbers(value: Any) -> bool:
    """Whether this is a list of numbers."""
    return isinstance(value, Sequence) and all(isinstance(v, (int, float)) for v in value)


_ORDER: tuple[Callable[[Group], Iterator[Chart]], ...] = (
    throughput, reading, phases, limits, slots, latencies, over_time, bandwidth, banks, energy,
    buckets,
)  # fmt: skip
"""Who makes the charts, in the order of the argument; a figure is called as its maker."""

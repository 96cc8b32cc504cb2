"""RACM curves as a section: verdicts, the figures, and on a page charts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from hwmodel.measure.racm import Curve, Level, descriptor_gbps
from hwmodel.measure.student import LEVEL
from sweeps.analyse.statistics import interval
from sweeps.plan.variant import AS_DESCRIBED
from sweeps.report.racm_report import Racm, alpha_of, sentences
from sweeps.report.trend import band
from sweeps.run.version import version
from sweeps.sections.chart import Axis, Lines, Series
from sweeps.sections.formats import between, condition_text, difference_text, size_text
from sweeps.sections.section import Block, Grid, Listing, Say, Section

_VARIED = {
    "alpha by read share": "read_share",
    "alpha by controller queues": "read_queue",
    "alpha by DMA window": "window_bytes",
}


def section(racm: Racm, drawn: bool = False) -> Section:
    """Tables of alpha, then the verdicts; `drawn`: the verdicts first, with charts, bandwidths and
    what is assumed."""
    device, levels = racm.device, racm.levels()
    title = f"{device.name}: what random access costs"
    verdicts = [Say(" ".join(sentences(racm, level)), "verdict") for level in levels]
    if not drawn:
        tables = [_alphas(racm, level, "{:.3f}".format) for level in levels]
        left = [Say(f"left out: {name}, {why}") for name, why in racm.left_out.items()]
        return Section(title, [*tables, *_plausible(racm), *left, *verdicts])
    about = (
        "alpha(s) = bandwidth of random extents of s bytes over that of a sequential stream under"
        f" the same condition. Bands: {LEVEL:.0%} intervals over"
        f" {len(racm.curves[0].sequential_gbps)} replications."
    )
    origin = f"bankwise {version()}; descriptions (SHA-256) {device.digest[:12]}."
    assumed = Section(f"Assumed numbers: {len(device.assumed)}", [Listing("", device.assumed)])
    parts = (_level(racm, level) for level in levels)
    return Section(title, [Say(about), *verdicts, *parts, *_plausible(racm), assumed, Say(origin)])


def _plausible(racm: Racm) -> list[Block]:
    """alpha of the plausible variants at the extent asked about, and why each is plausible."""
    if not racm.plausible:
        return []
    verdicts = [racm.verdict(level) for level in racm.levels()]
    why = {name: variant.why for name, variant in racm.device.plausible.items()}
    rows = [
        [name, *(f"{found.plausible.get(name, found.alpha).mean:.3f}" for found in verdicts),
         why.get(name, "")]
        for name in (AS_DESCRIBED, *racm.plausible)
    ]  # fmt: skip
    title = f"{racm.device.name}, plausible variants: alpha at {size_text(racm.extent)}"
    return [Grid(title, ["variant", *map(_place, racm.levels()), "why"], rows)]


def _place(level: Level) -> str:
    return "all channels" if level == "device" else "one channel"


def _level(racm: Racm, level: Level) -> Section:
    found = racm.of(level)
    described, *_ = found
    marks = list(_marks(racm, described))
    charts: list[Block] = []
    for caption, name in _VARIED.items():
        base = getattr(described.condition, name)
        varied = [c for c in found if c is described or getattr(c.condition, name) != base]
        if base is not None:
            series = [*(_series(curve, described) for curve in varied), *marks]
            axes = Axis("extent", "bytes"), Axis("alpha")
            charts.append(Lines(f"{caption}, {level}", *axes, series))
    text = f"As described: {condition_text(described.condition)}.{_note(racm, level)}"
    tables = [_alphas(racm, level), _rates(found)]
    return Section(_place(level).capitalize(), [Say(text), *charts, *tables])


def _note(racm: Racm, level: Level) -> str:
    if level == "channel":
        return " Extents are bytes of that channel; each 4 KiB of them is read or written."
    assert racm.device.accelerator is not None
    return (
        f" {racm.device.accelerator.dma.engines} DMA engines. Sequential: one stream that they"
        " share by 4 KiB. At random each walks extents of its own, so that even the longest"
        " open rows against each other."
    )


def _series(curve: Curve, described: Curve) -> Series:
    sizes = [float(point.extent_bytes) for point in curve.points]
    name = difference_text(curve.condition, described.condition)
    return band(name, sizes, list(map(alpha_of, curve.points)))


def _marks(racm: Racm, described: Curve) -> Iterator[Series]:
    """The threshold, the extent asked about, and the most that the engines' descriptors allow, over
    the sequential bandwidth as described."""
    first, last = (described.points[i].extent_bytes for i in (0, -1))
    yield Series(f"threshold {racm.threshold:g}", [first, last], [racm.threshold] * 2)
    yield Series(f"{size_text(racm.extent)}, asked about", [racm.extent] * 2, [0, 1])
    if described.condition.level == "device":
        base = interval(described.sequential_gbps).mean
        sizes = np.geomspace(first, last, 97).round().astype(int).tolist()
        allowed = {size: descriptor_gbps(racm.device, size) / base for size in sizes}
        shown = {size: alpha for size, alpha in allowed.items() if alpha <= 1}
        yield Series("descriptors allow", [*shown], [*shown.values()])


def _alphas(racm: Racm, level: Level, plain: Callable[[float], str] | None = None) -> Grid:
    """A row an extent, with intervals, or as `plain` writes the mean."""
    found = racm.of(level)
    heads = [difference_text(c.condition, found[0].condition) for c in found]
    rows = []
    for points in zip(*(c.points for c in found), strict=True):
        each = map(alpha_of, points)
        texts = [plain(a.mean) if plain else between(a, "{:.3f}".format) for a in each]
        rows.append([size_text(points[0].extent_bytes), *texts])
    if not plain:
        return Grid("alpha", ["extent", *heads], rows)
    rows.append(["GB/s seq.", *(f"{interval(c.sequential_gbps).mean:,.1f}" for c in found)])
    told = f"random over sequential (alpha) by extent; {condition_text(found[0].condition)}"
    return Grid(f"{racm.device.name}, {_place(level)}: {told}", ["extent", *heads], rows)


def _rates(curves: list[Curve]) -> Grid:
    rows = []
    for points in zip(*(c.points for c in curves), strict=True):
        reached = ((interval(p.gbps).mean, p.row_hit_rate) for p in points)
        texts = [f"{gbps:,.1f}, {hits:.0%}" for gbps, hits in reached]
        rows.append([size_text(points[0].extent_bytes), *texts])
    sequential = (interval(c.sequential_gbps).mean for c in curves)
    rows.append(["sequential", *(f"{gbps:,.1f}" for gbps in sequential)])
    heads = [difference_text(c.condition, curves[0].condition) for c in curves]
    return Grid("GB/s, row hits", ["extent", *heads], rows)

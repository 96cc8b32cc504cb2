"""RACM curves as one HTML page that needs no network: verdicts, charts, the figures."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hwmodel.measure.racm import Curve, Level, descriptor_gbps
from hwmodel.measure.student import LEVEL
from sweeps.analyse.statistics import interval
from sweeps.report import page as pages
from sweeps.report.chart import Axis, Lines, Series
from sweeps.report.formats import between, condition_text, difference_text, size_text
from sweeps.report.racm_report import Racm, alpha_of, plausible_grid, sentences
from sweeps.report.section import Block, Grid, Listing, Say, Section
from sweeps.report.trend import band
from sweeps.run.version import version

_VARIED = {
    "alpha by read share": "read_share",
    "alpha by controller queues": "read_queue",
    "alpha by DMA window": "window_bytes",
}


def page(racm: Racm) -> str:
    """One self-contained page."""
    device, levels = racm.device, racm.levels()
    about = (
        "alpha(s) = bandwidth of random extents of s bytes over that of a sequential stream under"
        f" the same condition. Bands: {LEVEL:.0%} intervals over"
        f" {len(racm.curves[0].sequential_gbps)} replications."
    )
    origin = f"bankwise {version()}; descriptions (SHA-256) {device.digest[:12]}."
    blocks: list[Block] = [
        Say(about),
        *(Say(" ".join(sentences(racm, level)), "verdict") for level in levels),
        *(_level(racm, level) for level in levels),
        *_plausible(racm),
        Section(f"Assumed numbers: {len(device.assumed)}", [Listing("", device.assumed)]),
        Say(origin),
    ]
    return pages.page([Section(f"{device.name}: what random access costs", blocks)])


def _plausible(racm: Racm) -> Iterator[Section]:
    """alpha of the plausible variants, and why each is plausible."""
    if racm.plausible:
        grid = plausible_grid(racm)
        why = {name: variant.why for name, variant in racm.device.plausible.items()}
        rows = [[*row, why.get(row[0], "")] for row in grid.rows]
        yield Section("Plausible variants", [Grid(grid.title, [*grid.columns, "why"], rows)])


def _level(racm: Racm, level: Level) -> Section:
    found = racm.of(level)
    described, *_ = found
    text = f"As described: {condition_text(described.condition)}.{_note(racm, level)}"
    marks = list(_marks(racm, described))
    charts: list[Block] = []
    for caption, name in _VARIED.items():
        base = getattr(described.condition, name)
        varied = [c for c in found if c is described or getattr(c.condition, name) != base]
        if base is not None:
            series = [*(_series(curve, described) for curve in varied), *marks]
            axes = Axis("extent", "bytes"), Axis("alpha")
            charts.append(Lines(f"{caption}, {level}", *axes, series))
    title = "All channels" if level == "device" else "One channel"
    return Section(title, [Say(text), *charts, *_grids(found)])


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


def _grids(curves: list[Curve]) -> Iterator[Grid]:
    heads = [difference_text(c.condition, curves[0].condition) for c in curves]
    alphas, rates = [], []
    for points in zip(*(c.points for c in curves), strict=True):
        extent = size_text(points[0].extent_bytes)
        alpha = map(alpha_of, points)
        alphas.append([extent, *(between(each, "{:.3f}".format) for each in alpha)])
        reached = ((interval(p.gbps).mean, p.row_hit_rate) for p in points)
        rates.append([extent, *(f"{gbps:,.1f}, {hits:.0%}" for gbps, hits in reached)])
    sequential = (interval(c.sequential_gbps).mean for c in curves)
    rates.append(["sequential", *(f"{gbps:,.1f}" for gbps in sequential)])
    yield Grid("alpha", ["extent", *heads], alphas)
    yield Grid("GB/s, row hits", ["extent", *heads], rates)

"""Random reads against sequential ones, by size of the piece and share of writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from hwmodel.measure.racm import Curve, Level, descriptor_gbps
from hwmodel.measure.student import LEVEL
from sweeps.analyse.statistics import interval
from sweeps.ask.memory_latency import assumptions
from sweeps.ask.question import DeviceName, Question, SizeText
from sweeps.ask.random_curves import (
    EXTENT,
    THRESHOLD,
    RandomCurves,
    alpha_of,
    random_curves,
    sentences,
)
from sweeps.plan.variant import AS_DESCRIBED
from sweeps.run.progress import Progress
from sweeps.sections.chart import Axis, Lines, Series, band
from sweeps.sections.formats import between, condition_text, difference_text, size_text
from sweeps.sections.section import Block, Grid, Say, Section

_VARIED = {
    "alpha by read share": "read_share",
    "alpha by controller queues": "read_queue",
    "alpha by DMA window": "window_bytes",
}


class CurveQuestion(Question):
    """Compare random reads with sequential ones, by size of the piece and share of writes.

    Is random access so slow that KV should be contiguous? It is not where random pieces of the
    asked size reach the threshold under every condition and plausible variant.
    """

    former: ClassVar[Mapping[str, str]] = {"--html": "`--save`"}
    plugs: ClassVar[bool] = True

    device: DeviceName
    """A shipped accelerator or memory, or a YAML file; of a memory one channel is simulated."""
    extent: SizeText = EXTENT
    """Contiguous bytes of a piece that is asked about."""
    threshold: Annotated[float, Field(gt=0, le=1)] = THRESHOLD
    """Share of sequential bandwidth that random pieces are to reach."""
    quick: bool = False
    """Simulates that piece as described, and nothing else."""

    def answer(self) -> RandomCurves:
        through = Progress().through("simulations")
        return random_curves(
            self.device, list(self.set), self.extent, self.threshold, self.quick, through
        )

    def section(self, findings: RandomCurves) -> Section:
        """Verdicts, charts and tables of alpha, bandwidths, and what is assumed."""
        device, levels = findings.device, findings.levels()
        about = (
            "alpha(s) = bandwidth of random extents of s bytes over that of a sequential stream"
            f" under the same condition. Bands: {LEVEL:.0%} intervals over"
            f" {len(findings.curves[0].sequential_gbps)} replications."
        )
        return Section(
            f"{device.name}: what random access costs",
            [
                Say(about),
                *(Say(" ".join(sentences(findings, level)), "verdict") for level in levels),
                *(_level(findings, level) for level in levels),
                *_plausible(findings),
                *(Say(f"left out: {name}, {why}") for name, why in findings.left_out.items()),
                *assumptions(device),
            ],
        )


def _plausible(curves: RandomCurves) -> list[Block]:
    """alpha of the plausible variants at the extent asked about, and why each is plausible."""
    if not curves.plausible:
        return []
    verdicts = [curves.verdict(level) for level in curves.levels()]
    why = {name: variant.why for name, variant in curves.device.plausible.items()}
    rows = [
        [name, *(f"{found.plausible.get(name, found.alpha).mean:.3f}" for found in verdicts),
         why.get(name, "")]
        for name in (AS_DESCRIBED, *curves.plausible)
    ]  # fmt: skip
    title = f"{curves.device.name}, plausible variants: alpha at {size_text(curves.extent)}"
    return [Grid(title, ["variant", *map(_place, curves.levels()), "why"], rows)]


def _place(level: Level) -> str:
    return "all channels" if level == "device" else "one channel"


def _level(curves: RandomCurves, level: Level) -> Section:
    every = curves.of(level)
    described, *_ = every
    marks = list(_marks(curves, described))
    charts: list[Block] = []
    for caption, name in _VARIED.items():
        base = getattr(described.condition, name)
        varied = [c for c in every if c is described or getattr(c.condition, name) != base]
        if base is not None:
            series = [*(_series(curve, described) for curve in varied), *marks]
            axes = Axis("extent", "bytes"), Axis("alpha")
            charts.append(Lines(f"{caption}, {level}", *axes, series))
    text = f"As described: {condition_text(described.condition)}.{_note(curves, level)}"
    tables = [_alphas(curves, level), _rates(every)]
    return Section(_place(level).capitalize(), [Say(text), *charts, *tables])


def _note(curves: RandomCurves, level: Level) -> str:
    if level == "channel":
        return " Extents are bytes of that channel; each 4 KiB of them is read or written."
    assert curves.device.accelerator is not None
    return (
        f" {curves.device.accelerator.dma.engines} DMA engines. Sequential: one stream that they"
        " share by 4 KiB. At random each walks extents of its own, so that even the longest"
        " open rows against each other."
    )


def _series(curve: Curve, described: Curve) -> Series:
    sizes = [float(point.extent_bytes) for point in curve.points]
    name = difference_text(curve.condition, described.condition)
    return band(name, sizes, list(map(alpha_of, curve.points)))


def _marks(curves: RandomCurves, described: Curve) -> Iterator[Series]:
    """The threshold, the extent asked about, and the most that the engines' descriptors allow, over
    the sequential bandwidth as described."""
    first, last = (described.points[i].extent_bytes for i in (0, -1))
    yield Series(f"threshold {curves.threshold:g}", [first, last], [curves.threshold] * 2)
    yield Series(f"{size_text(curves.extent)}, asked about", [curves.extent] * 2, [0, 1])
    if described.condition.level == "device":
        base = interval(described.sequential_gbps).mean
        sizes = np.geomspace(first, last, 97).round().astype(int).tolist()
        allowed = {size: descriptor_gbps(curves.device, size) / base for size in sizes}
        shown = {size: alpha for size, alpha in allowed.items() if alpha <= 1}
        yield Series("descriptors allow", [*shown], [*shown.values()])


def _alphas(curves: RandomCurves, level: Level) -> Grid:
    """A row an extent, with intervals; then the sequential bandwidth."""
    every = curves.of(level)
    described = every[0].condition
    rows = []
    for points in zip(*(c.points for c in every), strict=True):
        texts = (between(alpha_of(point), "{:.3f}".format) for point in points)
        rows.append([size_text(points[0].extent_bytes), *texts])
    rows.append(["GB/s seq.", *(f"{interval(c.sequential_gbps).mean:,.1f}" for c in every)])
    heads = [difference_text(c.condition, described) for c in every]
    title = f"{curves.device.name}, {_place(level)}: random over sequential (alpha) by extent"
    return Grid(title, ["extent", *heads], rows)


def _rates(curves: list[Curve]) -> Grid:
    rows = []
    for points in zip(*(c.points for c in curves), strict=True):
        reached = ((interval(p.gbps).mean, p.row_hit_rate) for p in points)
        texts = [f"{gbps:,.1f}, {hits:.0%}" for gbps, hits in reached]
        rows.append([size_text(points[0].extent_bytes), *texts])
    sequential = (interval(c.sequential_gbps).mean for c in curves)
    rows.append(["sequential", *(f"{gbps:,.1f}" for gbps in sequential)])
    heads = [difference_text(c.condition, curves[0].condition) for c in curves]
    return Grid("GB/s, row hits", ["extent", *heads], rows, terminal=False)

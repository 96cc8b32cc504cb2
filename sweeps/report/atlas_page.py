"""How the atlas is shown: efficiency by the size of extents, and where layout costs too much."""

from __future__ import annotations

from collections.abc import Iterator

from sweeps.plan.atlas import COSTLY, Atlas, Enough
from sweeps.report.chart import Heat, Spot
from sweeps.report.formats import (
    NONE,
    counted,
    share,
    size_text,
)  # fmt: skip
from sweeps.report.presenter import Presenter
from sweeps.report.section import Block, Grid
from sweeps.run.findings import Findings


def heat(atlas: Atlas) -> Heat:
    """Efficiency by row and extent, and from where on layout costs no more than `COSTLY`."""
    found, limits = atlas.cells, atlas.enough
    sizes = sorted({cell.extent for cell in found})
    spots = {
        name: [
            Spot(next(c.efficiency for c in those if c.described),
                 *(end(c.efficiency for c in those) for end in (min, max)))
            for size in sizes
            for those in [[c for c in found if (c.row, c.extent) == (name, size)]]
        ]
        for name, *_ in limits
    }  # fmt: skip
    described, worst = (
        [len(sizes) if end is None else sizes.index(end) for end in ends]
        for ends in ([each.described for each in limits], [each.worst for each in limits])
    )
    share = f"at most {COSTLY:.0%} lost to the right"
    return Heat(
        "KV read, % of peak, by size of the extents", "extent", list(map(size_text, sizes)), spots,
        {f"As described: {share}": described, f"Worst case: {share}": worst},
        "Large: as described, the first value of every axis; small: least and most over all their"
        " values. Lost is what the stated decode step loses to the same step whose KV lies in"
        f" extents of {size_text(max(sizes, default=0))}.", figure="atlas",
    )  # fmt: skip


class AtlasPage(Presenter):
    """What reading costs by the size of the extents."""

    def sentences(self, found: Findings[Atlas]) -> list[str]:
        return list(sentences(found.own.enough))

    def sections(self, found: Findings[Atlas], grids: list[Grid]) -> list[Block]:
        chart = heat(found.own)
        return [*([chart] if chart.cells else []), *grids]

    def grids(self, findings: Findings[Atlas]) -> list[Grid]:
        sizes = [
            [name, *(NONE if size is None else size_text(size) for size in ends)]
            for name, *ends in findings.own.enough
        ]
        least = ["memory", "as described", "in the worst case"]
        apart = [
            [each.row, f"{each.extent:,} B", f"{each.size:,} B", f"{each.padding:.1%}",
             f"{each.gained - 1:+.1%}", f"{each.lost:.1%}"]
            for each in findings.own.slots
        ]  # fmt: skip
        held = ["memory", "extent", "slot", "padding", "KV read gained", "throughput lost"]
        return [
            *(
                [Grid("What aligned slots cost and gain", held, apart)]
                if "align" in findings.table.config["axes"]
                else []
            ),
            Grid(f"Least extent at which layout costs at most {COSTLY:.0%}", least, sizes),
        ]


def sentences(found: list[Enough]) -> Iterator[str]:
    """From which extents on layout costs little, on all memories."""
    sizes = {"As described": [each.described for each in found],
             "In the worst case": [each.worst for each in found]}  # fmt: skip
    for words, ends in sizes.items():
        if known := [size for size in ends if size is not None]:
            where = f"on {len(known)} of {counted(len(ends), 'memory')}"
            yield (
                f"{words}, extents of {size_text(max(known))} keep the cost of layout at"
                f" {share(COSTLY)} of throughput or less {where}."
            )

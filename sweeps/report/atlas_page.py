"""How the atlas is shown: efficiency by the size of extents, and where layout costs too much."""

from __future__ import annotations

from sweeps.analyse.label import label
from sweeps.analyse.table import Table
from sweeps.plan.atlas import COSTLY, Cell, cells
from sweeps.report.chart import Heat, Spot
from sweeps.report.presenter import Presenter
from sweeps.report.random_access_phrases import size_text
from sweeps.report.section import Block, Grid


def heat(found: list[Cell]) -> Heat:
    """Efficiency by row and extent, and from where on layout costs no more than `COSTLY`."""
    sizes = sorted({cell.extent for cell in found})
    spots, described, worst = {}, [], []
    for name in dict.fromkeys(cell.row for cell in found):
        every = [[c for c in found if (c.row, c.extent) == (name, size)] for size in sizes]
        first = [c for those in every for c in those if c.described]
        if len(first) < len(sizes):  # the run is not complete
            continue
        spots[name] = [
            Spot(c.efficiency, *(end(o.efficiency for o in those) for end in (min, max)))
            for c, those in zip(first, every, strict=True)
        ]
        described.append(_costly([c.lost for c in first]))
        worst.append(_costly([max(c.lost for c in those) for those in every]))
    share = f"at most {COSTLY:.0%} lost to the right"
    return Heat(
        "KV read, % of peak, by size of the extents", "extent", list(map(size_text, sizes)), spots,
        {f"As described: {share}": described, f"Worst case: {share}": worst},
        "Large: as described, the first value of every axis; small: least and most over all their"
        " values. Lost is what the stated decode step loses to the same step whose KV lies in"
        f" extents of {size_text(max(sizes, default=0))}.",
    )  # fmt: skip


def _costly(lost: list[float]) -> int:
    """Columns up to the last that costs too much."""
    return max((i + 1 for i, share in enumerate(lost) if share > COSTLY), default=0)


class AtlasPage(Presenter):
    """What reading costs by the size of the extents."""

    def sentences(self, table: Table) -> list[str]:
        chart = heat(cells(table))
        described, worst = chart.lines.values()

        def least(places: int) -> str:
            sizes = chart.columns_of
            return sizes[places] if places < len(sizes) else f"more than {sizes[-1]}"

        return [
            f"{name}: layout costs at most {COSTLY:.0%} of throughput from {least(described[i])}"
            f" on, in the worst case from {least(worst[i])} on"
            for i, name in enumerate(chart.cells)
        ]

    def sections(self, table: Table) -> list[Block]:
        chart = heat(cells(table))
        return [*([chart] if chart.cells else []), *self.grids(table)]

    def grids(self, table: Table) -> list[Grid]:
        found, rows = cells(table), []
        for part in sorted({cell.part for cell in found}):
            own = sorted((c for c in found if c.part == part), key=lambda c: abs(c.off))
            median, nine = (own[int(q * (len(own) - 1))] for q in (0.5, 0.9))
            most = own[-1]
            where = ", ".join(label(value) for value in most.overrides.values())
            rows.append([part, str(len(own)), f"{abs(median.off):.1%}", f"{abs(nine.off):.1%}",
                         f"{most.off:+.1%}", where])  # fmt: skip
        heads = ["cells", "number", "median error", "90 %", "worst", "where"]
        return [Grid("Closed form over simulation (bandwidth --estimate)", heads, rows)]

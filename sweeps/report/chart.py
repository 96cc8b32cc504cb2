"""Charts as data: what is drawn, with units, and its table. `sweeps.report.vega` says how."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from sweeps.analyse.statistics import Interval

Cells = list[Any]
_DIGITS = 7
"""Significant digits of a chart's data: its labels have four, and one more digit would be rounded
twice (148.453 to 148.45 to 148.4, beside 148.5 in a table)."""


@dataclass(frozen=True)
class Axis:
    """`label` has the unit in it, after a comma. `bytes`: ticks are powers of two, as KiB, MiB."""

    label: str
    scale: Literal["linear", "log", "bytes"] = "linear"
    zero: bool = True
    """Whether a linear axis begins at zero."""
    tight: bool = False
    """Whether a linear axis ends where the values do, rather than at a tick."""


@dataclass(frozen=True)
class Series:
    """Points of a chart in order of x; `low` and `high` the ends of their intervals, or nothing."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    band: bool = False
    """Draw the interval alone, without its middle."""
    steps: bool = False
    """Draw steps, whatever the chart's form: each value holds until the next."""
    names: Sequence[str] = ()
    """Of its points, written beside them where the chart has points."""

    def columns(self) -> list[str]:
        """Headings of its values where they are columns."""
        ends = [f"{self.name}: low", f"{self.name}: high"]
        return ends if self.band else [self.name, *(ends if len(self.low) else [])]

    def values(self) -> list[Sequence[float]]:
        """What stands under these headings."""
        ends = [self.low, self.high]
        return ends if self.band else [self.y, *(ends if len(self.low) else [])]


@dataclass(frozen=True)
class Drawn:
    """What every chart has. `figure`: a short name by which it is asked for, the same whatever a
    run compares; several of one name stand under one another."""

    title: str
    figure: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Lines(Drawn):
    """Lines, steps or points over an axis."""

    x: Axis
    y: Axis
    series: list[Series]
    note: str = ""
    form: Literal["lines", "steps", "points"] = "lines"

    def columns(self) -> list[str]:
        if self._shared:
            return [self.x.label, *(name for one in self.series for name in one.columns())]
        ends = ["low", "high"] if self._ends else []
        names = ["name"] if any(one.names for one in self.series) else []
        return ["series", self.x.label, self.y.label, *ends, *names]

    def rows(self) -> list[Cells]:
        if self._shared:
            values = (column for one in self.series for column in one.values())
            return [list(row) for row in zip(self.series[0].x, *values, strict=True)]
        found = []
        for one in self.series:
            for i, (x, y) in enumerate(zip(one.x, one.y, strict=True)):
                ends = [one.low[i], one.high[i]] if len(one.low) else [None, None]
                names = [one.names[i]] if one.names else []
                found.append([one.name, x, y, *(ends if self._ends else []), *names])
        return found

    @property
    def _shared(self) -> bool:
        """Whether all series have the same x: then its table has a column a series."""
        first, *others = self.series
        return self.form != "points" and all(list(one.x) == list(first.x) for one in others)

    @property
    def _ends(self) -> bool:
        return any(len(one.low) for one in self.series)


@dataclass(frozen=True)
class Curves(Drawn):
    """Quantile functions: a value for each of the same shares, a column a series."""

    x: Axis
    shares: Sequence[float]
    values: Mapping[str, Sequence[float]]
    note: str = ""

    def columns(self) -> list[str]:
        return ["share of requests, %", *(f"{name}: {self.x.label}" for name in self.values)]

    def rows(self) -> list[Cells]:
        columns = self.values.values()
        return [
            [100 * share, *values] for share, *values in zip(self.shares, *columns, strict=True)
        ]


class Bar(NamedTuple):
    """A name, its value with the interval, and whether it stands back (a control)."""

    name: str
    value: Interval
    dim: bool = False


@dataclass(frozen=True)
class Bars(Drawn):
    """Horizontal bars from zero with whiskers, as far as these say something; `title` has the
    unit."""

    bars: list[Bar]
    note: str = ""
    digits: int = 1

    def columns(self) -> list[str]:
        return ["name", self.title, "low", "high", "replications"]

    def rows(self) -> list[Cells]:
        return [
            [b.name, b.value.mean, *((b.value.low, b.value.high) if b.value.told else (None, None)),
             b.value.count]
            for b in self.bars
        ]  # fmt: skip


@dataclass(frozen=True)
class Tornado(Drawn):
    """Relative changes as horizontal bars to both sides of none, to scale in logarithms, so that
    twice and half are equally long; values are shares (0.5: half as much again)."""

    bars: list[Bar]
    note: str = ""
    waterfall: bool = False
    """Each bar begins where the one before ended; the last, their product, at none."""

    def columns(self) -> list[str]:
        return ["name", self.title, "low", "high", "replications"]

    def rows(self) -> list[Cells]:
        return [
            [b.name, 100 * b.value.mean, 100 * b.value.low, 100 * b.value.high, b.value.count]
            for b in self.bars
        ]


@dataclass(frozen=True)
class Stacks(Drawn):
    """Horizontal bars of parts; of one length each where `share`, else to scale."""

    parts: list[str]
    stacks: dict[str, list[float]]
    """Name -> a value a part; of 1 in all where `share`, which rows hold in %."""
    note: str = ""
    share: bool = True
    digits: int = 1

    def columns(self) -> list[str]:
        return ["name", *self.parts]

    def rows(self) -> list[Cells]:
        factor = 100 if self.share else 1
        return [[name, *(factor * v for v in values)] for name, values in self.stacks.items()]


@dataclass(frozen=True)
class Patches(Drawn):
    """Rectangles over two axes, each with an owner: (x, width, y, height, owner)."""

    x: Axis
    y: Axis
    patches: list[tuple[float, float, float, float, int]]
    holder: str
    """What `whose` numbers, for the table's heading."""
    note: str = ""

    def columns(self) -> list[str]:
        return [self.holder, f"from {self.x.label}", f"until {self.x.label}",
                f"from {self.y.label}", f"until {self.y.label}"]  # fmt: skip

    def rows(self) -> list[Cells]:
        return [[whose, x, x + width, y, y + height] for x, width, y, height, whose in self.patches]


class Region(NamedTuple):
    """Who leads from `low` to `high`, by which share, and whether significantly."""

    low: float
    high: float
    owner: int
    lead: float
    sure: bool = True


@dataclass(frozen=True)
class Regions(Drawn):
    """A row a case: who leads where on a logarithmic axis, by how much, and where it ties."""

    x: str
    owners: list[str]
    cases: dict[str, list[Region]]
    """Name -> regions in rising order."""
    ties: dict[str, Interval]
    """Name -> where the lead changes."""
    note: str = ""

    def columns(self) -> list[str]:
        ends = [f"from {self.x}", f"until {self.x}"]
        return ["case", *ends, "leads", "lead, %", "tie", "tie: low", "tie: high"]

    def rows(self) -> list[Cells]:
        found = []
        for name, regions in self.cases.items():
            tie = self.ties.get(name)
            ends = [None] * 3 if tie is None else [tie.mean, tie.low, tie.high]
            found += [
                [name, one.low, one.high, self.owners[one.owner], 100 * one.lead, *ends]
                for one in regions
            ]
        return found


class Spot(NamedTuple):
    """A cell of a heat map: its colour's value, 0 to 1, and the ends of what it may be."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Heat(Drawn):
    """A table of coloured cells, with lines that part columns, each at a place in every row."""

    x: str
    columns_of: list[str]
    cells: dict[str, list[Spot]]
    """Row -> a cell a column."""
    lines: dict[str, list[int]]
    """What a line is -> how many columns are left of it in each row."""
    note: str = ""

    def columns(self) -> list[str]:
        return ["row", self.x, "value", "low", "high", *(f"left of: {name}" for name in self.lines)]

    def rows(self) -> list[Cells]:
        return [
            [name, column, *spot, *(int(j < places[i]) for places in self.lines.values())]
            for i, (name, spots) in enumerate(self.cells.items())
            for j, (column, spot) in enumerate(zip(self.columns_of, spots, strict=True))
        ]


class Span(NamedTuple):
    """A stretch of a row of a timeline: its kind, and more words for the pointer."""

    row: str
    start: float
    end: float
    kind: str
    told: str = ""


@dataclass(frozen=True)
class Timeline(Drawn):
    """Rows over one axis with coloured stretches in them; those of a `pale` kind lie behind."""

    x: Axis
    names: list[str]
    """The rows, from the top."""
    spans: list[Span]
    kinds: dict[str, str]
    """Kind -> its colour, in the legend's order."""
    pale: frozenset[str] = frozenset()
    ends: tuple[float, float] = (0.0, 1.0)
    """Of the axis."""
    note: str = ""

    def columns(self) -> list[str]:
        return ["row", f"from {self.x.label}", f"until {self.x.label}", "kind", "what"]

    def rows(self) -> list[Cells]:
        return [list(span) for span in self.spans]


class Dot(NamedTuple):
    """A relative error (0.5: half as much again), what kind it is of, and how far it may be."""

    value: float
    kind: str
    tolerance: float


@dataclass(frozen=True)
class Dots(Drawn):
    """Relative errors as dots in named rows, on both sides of none, to scale in logarithms."""

    groups: dict[str, dict[str, list[Dot]]]
    """Heading -> row -> its dots."""
    note: str = ""

    def columns(self) -> list[str]:
        return ["group", "name", "kind", self.title, "tolerance"]

    def rows(self) -> list[Cells]:
        return [
            [group, name, dot.kind, 100 * dot.value, 100 * dot.tolerance]
            for group, named in self.groups.items()
            for name, dots in named.items()
            for dot in dots
        ]


Chart = Heat | Lines | Curves | Bars | Tornado | Stacks | Patches | Regions | Timeline | Dots


def cell(value: Any) -> str:
    """A value of a chart's table as text; nothing for what is unknown or infinite."""
    if isinstance(value, float):
        return f"{value:.{_DIGITS}g}" if math.isfinite(value) else ""
    return "" if value is None else str(value)


def file_name(*titles: str) -> str:
    """A name for a file of a chart: its titles in small letters, digits and hyphens."""
    words = re.findall(r"[a-z0-9]+", " ".join(titles).lower())
    return "-".join(words)[:80] or "chart"

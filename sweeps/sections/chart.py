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


def band(name: str, x: list[float], intervals: list[Interval]) -> Series:
    """A line with its intervals, where all points have one."""
    sure = all(math.isfinite(each.half) for each in intervals)
    low, high = ([e.low for e in intervals], [e.high for e in intervals]) if sure else ((), ())
    return Series(name, x, [each.mean for each in intervals], low, high)


@dataclass(frozen=True)
class AnyChart:
    """What every chart has. `figure`: a short name by which it is asked for, the same whatever a
    run compares; several of one name stand under one another."""

    title: str
    figure: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Lines(AnyChart):
    """Lines, steps or points over an axis."""

    x: Axis
    y: Axis
    series: list[Series]
    note: str = ""
    form: Literal["lines", "steps", "points", "quantiles"] = "lines"
    """Quantiles: all series have the same shares up the y axis, and values along x."""

    def columns(self) -> list[str]:
        if self._quantiles:
            return [self.y.label, *(f"{one.name}: {self.x.label}" for one in self.series)]
        if self._shared:
            return [self.x.label, *(name for one in self.series for name in one.columns())]
        ends = ["low", "high"] if self._ends else []
        names = ["name"] if any(one.names for one in self.series) else []
        return ["series", self.x.label, self.y.label, *ends, *names]

    def rows(self) -> list[Cells]:
        if self._quantiles:
            columns = (one.x for one in self.series)
            return [list(row) for row in zip(self.series[0].y, *columns, strict=True)]
        if self._shared:
            values = (column for one in self.series for column in one.values())
            return [list(row) for row in zip(self.series[0].x, *values, strict=True)]
        found, named = [], any(one.names for one in self.series)
        for one in self.series:
            for i, (x, y) in enumerate(zip(one.x, one.y, strict=True)):
                ends = [one.low[i], one.high[i]] if len(one.low) else [None, None]
                names = [one.names[i] if one.names else None] if named else []
                found.append([one.name, x, y, *(ends if self._ends else []), *names])
        return found

    @property
    def _quantiles(self) -> bool:
        return self.form == "quantiles"

    @property
    def _shared(self) -> bool:
        """Whether all series have the same x: then its table has a column a series."""
        first, *others = self.series
        return self.form != "points" and all(list(one.x) == list(first.x) for one in others)

    @property
    def _ends(self) -> bool:
        return any(len(one.low) for one in self.series)


class Bar(NamedTuple):
    """A name, its value with the interval, and whether it stands back (a control); or the parts
    that make the value."""

    name: str
    value: Interval
    dim: bool = False
    parts: tuple[float, ...] = ()


@dataclass(frozen=True)
class Bars(AnyChart):
    """Horizontal bars with whiskers, as far as these say something; `title` has the unit."""

    bars: list[Bar]
    note: str = ""
    digits: int = 1
    relative: bool = False
    """Relative changes to both sides of none, to scale in logarithms, so that twice and half are
    equally long; values are shares (0.5: half as much again)."""
    waterfall: bool = False
    """Of relative ones: each begins where the one before ended; the last, their product, at
    none."""
    parts: tuple[str, ...] = ()
    """What the parts of each bar are."""
    share: bool = False
    """All bars of parts have one length; rows hold % of it."""

    @classmethod
    def stacked(
        cls, title: str, parts: Sequence[str], stacks: Mapping[str, Sequence[float]],
        note: str = "", share: bool = True, digits: int = 1,
    ) -> Bars:  # fmt: skip
        """Bars of parts: name -> a value a part; of 1 in all where `share`."""
        bars = []
        for name, values in stacks.items():
            whole = math.fsum(values)
            bars.append(Bar(name, Interval(whole, whole, whole, 1), parts=tuple(values)))
        return cls(title, bars, note, digits, parts=tuple(parts), share=share)

    def columns(self) -> list[str]:
        if self.parts:
            return ["name", *self.parts]
        return ["name", self.title, "low", "high", "replications"]

    def rows(self) -> list[Cells]:
        factor = 100 if self.share or self.relative else 1
        if self.parts:
            return [[b.name, *(factor * value for value in b.parts)] for b in self.bars]
        return [
            [b.name, factor * b.value.mean,
             *((factor * b.value.low, factor * b.value.high) if self.relative or b.value.is_known
               else (None, None)), b.value.count]
            for b in self.bars
        ]  # fmt: skip


class RowSpan(NamedTuple):
    """A stretch of a row from `start` to `end`: its kind, and more words for the pointer."""

    row: str
    start: float
    end: float
    kind: str
    words: str = ""
    low: float = 0.0
    high: float = 0.0
    """Its ends on the other axis, where that has numbers instead of rows."""
    lead: float | None = None
    """By which share its kind leads there; its shade."""
    sure: bool = True
    """Whether that is significant."""


@dataclass(frozen=True)
class Spans(AnyChart):
    """Coloured stretches over one axis, in rows or over a second axis."""

    x: Axis
    names: list[str]
    """The rows, from the top; none over a second axis."""
    spans: list[RowSpan]
    kinds: dict[str, str]
    """Kind -> its colour, in the legend's order; without a colour it has that of a competitor."""
    pale: frozenset[str] = frozenset()
    """Kinds that lie behind."""
    ends: tuple[float, float] | None = None
    """Of the axis; None: those of the spans."""
    note: str = ""
    y: Axis | None = None
    holder: str = "kind"
    """What a kind is, for the table's heading."""
    ties: Mapping[str, Interval] = field(default_factory=dict)
    """Row -> where its lead changes."""

    @property
    def led(self) -> bool:
        """Whether its shades say by how much a kind leads."""
        return any(span.lead is not None for span in self.spans)

    def columns(self) -> list[str]:
        ends = [f"from {self.x.label}", f"until {self.x.label}"]
        if self.y is not None:
            return [self.holder, *ends, f"from {self.y.label}", f"until {self.y.label}"]
        if self.led:
            return ["case", *ends, "leads", "lead, %", "tie", "tie: low", "tie: high"]
        return ["row", *ends, self.holder, "what"]

    def rows(self) -> list[Cells]:
        if self.y is not None:
            return [[each.kind, *each[1:3], each.low, each.high] for each in self.spans]
        if not self.led:
            return [list(each[:5]) for each in self.spans]
        found = []
        for each in self.spans:
            tie = self.ties.get(each.row)
            ends = [None] * 3 if tie is None else [tie.mean, tie.low, tie.high]
            found.append([*each[:4], 100 * (each.lead or 0.0), *ends])
        return found


class Dot(NamedTuple):
    """A relative error (0.5: half as much again), what kind it is of, and how far it may be."""

    value: float
    kind: str
    tolerance: float


@dataclass(frozen=True)
class Points(AnyChart):
    """Relative errors as points in named rows, on both sides of none, to scale in logarithms."""

    groups: dict[str, dict[str, list[Dot]]]
    """Heading -> row -> its points."""
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


class PlaceValue(NamedTuple):
    """What one of those compared has at a place: a value of each axis, as text."""

    name: str
    at: tuple[str, ...]
    value: Interval


@dataclass(frozen=True)
class Places(AnyChart):
    """Values at the combinations of axes, of which a reader chooses what is drawn."""

    y: Axis
    axes: dict[str, list[str]]
    """Label -> its values, in order."""
    values: list[PlaceValue]
    note: str = ""

    def columns(self) -> list[str]:
        return ["name", *self.axes, self.y.label, "low", "high"]

    def rows(self) -> list[Cells]:
        return [
            [each.name, *each.at, each.value.mean,
             *((each.value.low, each.value.high) if math.isfinite(each.value.half)
               else (None, None))]
            for each in self.values
        ]  # fmt: skip


Chart = Bars | Lines | Spans | Points | Places


def cell(value: Any) -> str:
    """A value of a chart's table as text; nothing for what is unknown or infinite."""
    if isinstance(value, float):
        return f"{value:.{_DIGITS}g}" if math.isfinite(value) else ""
    return "" if value is None else str(value)


def file_name(*titles: str) -> str:
    """A name for a file of a chart: its titles in small letters, digits and hyphens."""
    words = re.findall(r"[a-z0-9]+", " ".join(titles).lower())
    return "-".join(words)[:80] or "chart"

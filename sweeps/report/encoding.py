"""What the forms of charts share: data, colours, axes, what the pointer shows."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from typing import Any

from sweeps.sections.chart import Axis, cell

Spec = dict[str, Any]
_BYTES = (
    "datum.value >= 1073741824 ? format(datum.value / 1073741824, ',.4~r') + ' GiB' :"
    " datum.value >= 1048576 ? format(datum.value / 1048576, ',.4~r') + ' MiB' :"
    " datum.value >= 1024 ? format(datum.value / 1024, ',.4~r') + ' KiB' : datum.value + ' B'"
)


def inline(columns: str, rows: Sequence[Sequence[Any]], words: str) -> Spec:
    """Inline CSV without columns that are empty. columns, words: names between blanks, and those
    that are not numbers."""
    table = [[cell(value) for value in row] for row in rows]
    names = columns.split()
    kept = [i for i in range(len(names)) if any(row[i] for row in table)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([names[i] for i in kept])
    writer.writerows([[row[i] for i in kept] for row in table])
    numbers = {names[i]: "number" for i in kept if names[i] not in words.split()}
    return {"values": out.getvalue(), "format": {"type": "csv", "parse": numbers}}


def tooltip(*fields: tuple[str, str]) -> list[Spec]:
    """What the pointer shows: fields, each with its title; numbers with four digits."""
    words = ("name", "of", "part", "place")
    return [
        {"field": name, "title": title} | ({} if name in words else {
            "format": ",.4~r", "type": "quantitative"})
        for name, title in fields
    ]  # fmt: skip


def colour_of(domain: dict[str, str], legend: bool = True, field: str = "of") -> Spec:
    """The colour encoding of a field, from a colour by value."""
    scale = {"domain": list(domain), "range": list(domain.values())}
    return {"field": field, "type": "nominal", "scale": scale} | ({} if legend else {
        "legend": None})  # fmt: skip


def axis_of(axis: Axis, values: Iterable[float]) -> Spec:
    """x or y of these values; logarithmic ones have their ticks here, as Vega draws a line at
    each of nine a decade."""
    known = [value for value in values if drawable(axis, value)]
    found: Spec = {"type": "quantitative", "title": axis.label}
    if axis.scale == "linear":
        scale = {"zero": axis.zero, "nice": not axis.tight}
        ticks = {"tickCount": 5, "labelOverlap": True, "format": ",~r"}
        return {**found, "scale": scale, "axis": ticks}
    base = 2 if axis.scale == "bytes" else 10
    low, high = min(known, default=1.0), max(known, default=1.0)
    first, last = math.floor(math.log(low, base)), math.ceil(math.log(high, base))
    last = max(last, first + 1)
    every = max(1, math.ceil((last - first) / 6))
    digits = (1, 2, 5) if base == 10 and last - first <= 2 else (1,)
    at = [digit * float(base) ** p for p in range(first, last + 1, every) for digit in digits]
    domain = [float(base) ** first, float(base) ** last]
    label: Spec = {"labelExpr": _BYTES} if base == 2 else {"format": ",~r"}
    return {**found, "scale": {"type": "log", "base": base, "domain": domain},
            "axis": {"values": [v for v in at if v <= domain[1]], **label}}  # fmt: skip


def drawable(axis: Axis, value: float) -> bool:
    """Whether a value is finite, and above zero where the axis is logarithmic."""
    return math.isfinite(value) and (value > 0 or axis.scale == "linear")

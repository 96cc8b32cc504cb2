"""Published figures as data: cells, and how far the model may be from each."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from hwmodel.description.description import DescriptionError, Strict, checked
from hwmodel.description.library import LIBRARY
from hwmodel.description.units import PositiveBytes
from hwmodel.description.written import text
from hwmodel.measure.pattern import Row

Verdict = Literal["within", "refuted", "lower limit", "input", "open"]
"""open: predicted, and not measured yet."""
Group = Literal["kernels and software", "missing mechanism", "assumed parameters", "not comparable"]
"""Of causes: in the program that was measured, in what the model lacks, in a number that no source
has, or in the figure, which is of something else than the model's."""

UNITS = {
    "bandwidth": ("GB/s", "%", "x"),
    "latency": ("ns",),
    "energy": ("pJ/bit",),
    "decode": ("ms", "GB/s"),
    "prefill": ("ms",),
    "attention": ("GB/s", "x"),
    "kv_order": ("GB/s", "x"),
    "layout": ("s", "x"),
}
"""Kind of a cell -> the units it may have; % of the device's peak, x the other set-up's, of
attention the other block's, of layout as the run has it."""


SERVER_UNITS = ("s", "ms", "tokens/s", "preemptions", "x")
"""Units of what a whole server was measured to do."""
TRANSFER_UNITS = ("descriptors", "KiB")
"""More units, of transfers."""


class Skipped(DescriptionError):
    """What a measurement is held against is not here: a log, or figures of a run."""


Settings = dict[str, Any]
"""Dotted path -> value, as `--set` has them."""


class Quantity(NamedTuple):
    """A number and its unit."""

    value: float
    unit: str

    def __str__(self) -> str:
        number = f"{self.value:,.0f}" if self.value >= 1000 else f"{self.value:.4g}"
        return number + " " * (self.unit not in "%x") + self.unit


def _figure(value: object) -> object:
    units = "|".join(
        unit
        for known in (*UNITS.values(), SERVER_UNITS, TRANSFER_UNITS)
        for unit in dict.fromkeys(known)
    )
    match = re.fullmatch(rf"\s*([0-9]+(?:\.[0-9]+)?)\s*({units})\s*", str(value))
    if match is None or not float(match[1]):
        raise ValueError(f"expected a number with its unit, {units}; got {value!r}")
    return Quantity(float(match[1]), match[2])


Written = Annotated[Quantity, BeforeValidator(_figure), text(r"^\s*[0-9.]+\s*\S+$", "13.27GB/s")]


class Tolerance(Strict):
    """How far the model may be from a measurement: a share of it, or in its unit."""

    within: Written
    """A share of the measured figure, as `5%`, or in its unit."""
    reason: str
    """Why so much."""

    def around(self, measured: Quantity) -> float:
        """Half the width of the interval, in the measurement's unit."""
        share = self.within.unit == "%"
        return self.within.value / 100 * measured.value if share else self.within.value


class ReadLatency(Strict):
    """An idle, dependent read: on a channel by the state of its row, on a device anywhere in a
    window of its memory."""

    row: Row | None = None
    """On a channel: the state of its row."""
    window: PositiveBytes | None = None
    """On a device: the part of its memory that is read."""


class Recorded(Strict):
    """A figure of the release run: what repeats another one's test."""

    run: str
    """Name of the part in the results of the release run."""
    figure: str
    """Key of the figure in that part."""

    def value(self) -> float:
        """The figure. Raises Skipped where the repository's pages are not here."""
        file = LIBRARY.parent / f"docs/release/results/{self.run}.json"
        if not file.parent.is_dir():
            raise Skipped("results are in the repository, and not in an installed package")
        values = json.loads(file.read_text(encoding="utf-8"))["values"] if file.is_file() else {}
        if self.figure not in values:
            raise DescriptionError(f"{self.run} has no figure {self.figure!r}", file)
        value = values[self.figure]
        return float(value[0] if isinstance(value, list) else value)


class MeasuredCell(Strict):
    """One measured figure: what every kind of them has."""

    what: str
    """One line."""
    over: str | None = None
    """What the figure is divided by, in x."""
    measured: Written | None = None
    """None: nobody has, so far; there is a prediction."""
    tolerance: str = ""
    """One of the file by name."""
    source: str
    confidence: Literal["A", "B", "C"]
    prediction: Written | None = None
    """What the model said before it was measured."""
    interval: Annotated[list[Written], Field(min_length=2, max_length=2)] | None = None
    """Where no tolerance is given: between what the prediction said that 19 in 20 such figures
    lie."""
    stands: Literal["measured", "lower_limit", "input"] = "measured"
    """lower_limit: the requester, not the memory, bound the rate, so that a time is an upper limit.
    input: the description was made of it."""
    agrees: bool = False
    """The model was found to agree, and must go on doing so."""
    sets: str = ""
    """The mechanism that was chosen with this figure in view: an agreement is counted apart."""
    cause: str = ""
    """Why the model is refuted, as far as is known."""
    group: Group | None = None
    """Where that cause lies; with `cause` alone."""
    note: str = ""

    @checked
    def _whole(self) -> None:
        if self.group is not None and not self.cause:
            raise ValueError("group: stands with a cause, and only there")
        if self.measured is None and self.prediction is None:
            raise ValueError("prediction: expected one where nothing is measured")
        if bool(self.tolerance) == (self.interval is not None):
            raise ValueError("expected a tolerance, or an interval instead")
        if self.interval is not None and self.prediction is None:
            raise ValueError("prediction: expected one within the interval")
        if (self.stated.unit == "x") != self.divided:
            raise ValueError("over: stands with a figure in x, and only there")

    @property
    def divided(self) -> bool:
        """Whether the figure is a share of another one."""
        return self.over is not None

    @property
    def stated(self) -> Quantity:
        """What was measured, or was predicted where nothing is."""
        found = self.measured or self.prediction
        assert found is not None
        return found

    @property
    def kind(self) -> str:
        """What was measured."""
        raise NotImplementedError

    def in_units(self, units: tuple[str, ...]) -> None:
        """Raises ValueError where a figure has another unit than these."""
        ends = dict(zip(("low", "high"), self.interval or (), strict=False))
        given = {"measured": self.measured, "prediction": self.prediction, **ends}
        for name, figure in given.items():
            if figure is not None and figure.unit not in units:
                known = " or ".join(units)
                why = f"{name}: a figure of {self.kind} is in {known}"
                raise ValueError(f"{why}; got {figure.unit}")


class TimedBy(NamedTuple):
    """Whose kernels took a step."""

    kernels: str
    """Their class."""
    device: str
    model: str
    expected: tuple[float, float]
    """Between which multiples of the model's time 19 in 20 measured ones are expected."""


@dataclass(frozen=True)
class ComparedCell:
    """A cell beside the model's figure, both in the cell's unit."""

    cell: MeasuredCell
    model: float
    """Of bandwidths what reaches the requesters (`derate`)."""
    tolerance: float
    share: float | None = None
    """Of a peak that a step time comes to: of the memory's bandwidth in decode, of the FLOPs in
    prefill; by the bytes and FLOPs that the model must move and compute."""
    derate: float = 1.0
    """By which the simulated bandwidth was multiplied."""
    by: TimedBy | None = None
    """Of step times alone."""

    @property
    def error(self) -> float:
        return self.model / self.cell.stated.value - 1

    @property
    def inside(self) -> bool:
        """Of a step time: whether the measured one lies where it was expected."""
        assert self.by is not None
        low, high = self.by.expected
        return low <= self.cell.stated.value / self.model <= high

    @property
    def verdict(self) -> Verdict:
        off = self.model - self.cell.stated.value
        if self.cell.measured is None:
            return "open"
        if self.cell.interval is not None:  # what was said is judged, not what is said now
            low, high = self.cell.interval
            return "within" if low.value <= self.cell.measured.value <= high.value else "refuted"
        if self.cell.stands == "input":
            return "input"
        if self.cell.stands == "lower_limit":
            slower = off if self.cell.stated.unit in ("ms", "ns") else -off
            return "lower limit" if slower <= self.tolerance else "refuted"
        return "within" if abs(off) <= self.tolerance else "refuted"

    @property
    def lost(self) -> bool:
        """Whether an agreement that was found is gone."""
        return self.cell.agrees and self.verdict == "refuted"


def half_width(cell: MeasuredCell, tolerances: dict[str, Tolerance]) -> float:
    """How far from the figure of a cell its interval reaches, in its unit."""
    if cell.interval is None:
        return tolerances[cell.tolerance].around(cell.stated)
    return (cell.interval[1].value - cell.interval[0].value) / 2

"""The scale of a chart's axis: values to shares of its length, and ticks at round values."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from sweeps.report.chart import Axis

_TICKS = 5
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True)
class Scale:
    """From `low` to `high`, in logarithms where `log`."""

    low: float
    high: float
    log: bool
    ticks: list[tuple[float, str]]
    """Values and their text."""

    def share(self, value: float) -> float:
        """Where a value lies, from 0 to 1; what lies outside stays at the end."""
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log(max(value, low)), math.log(low), math.log(high)
        return min(max((value - low) / (high - low), 0.0), 1.0)


def scale(axis: Axis, values: Iterable[float]) -> Scale:
    """A scale on which all finite `values` lie."""
    known = [value for value in values if math.isfinite(value)]
    if axis.scale == "linear":
        return _linear(known or [0.0, 1.0], axis.zero, axis.tight)
    positive = [value for value in known if value > 0] or [1.0]
    base = 2 if axis.scale == "bytes" else 10
    return _logarithmic(min(positive), max(positive), base)


def _linear(values: list[float], zero: bool, tight: bool) -> Scale:
    low, high = min(values), max(values)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high == low:
        high = low + (abs(low) or 1.0)
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(each for each in _STEPS if each * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    values = [i * step for i in range(first, last + 1)]
    if not tight:
        low, high = values[0], values[-1]
    return Scale(low, high, False, [(v, number(v)) for v in values if low <= v <= high])


def _logarithmic(low: float, high: float, base: int) -> Scale:
    """Ends at whole powers, ticks at some of them."""
    first = math.floor(math.log(low, base) + 1e-9)
    last = max(math.ceil(math.log(high, base) - 1e-9), first + 1)
    every = max(1, math.ceil((last - first) / _TICKS))
    powers = range(first, last + 1, every)
    name = size if base == 2 else number
    return Scale(
        float(base) ** first, float(base) ** last, True,
        [(float(base) ** power, name(float(base) ** power)) for power in powers],
    )  # fmt: skip


def number(value: float) -> str:
    """A tick's number, short."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.4g}M"
    return f"{round(value, 12) + 0.0:,.6g}"


def size(value: float) -> str:
    """A size in the largest unit of which it is one or more."""
    power = min(max(int(math.log2(max(value, 1.0)) // 10), 0), len(_UNITS) - 1)
    return f"{value / 1024**power:,.4g} {_UNITS[power]}"

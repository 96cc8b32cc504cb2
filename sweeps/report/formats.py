"""How numbers are written in sentences and tables: shares with their intervals, ratios, counts.

An interval is written `30 % (95 % CI 28 to 32)`. `said` leaves the name of the interval at its
first use in a sentence; `bare` takes it out of a table's cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from hwmodel.measure.student import LEVEL
from sweeps.analyse.statistics import Interval, grown

CI = f"{100 * LEVEL:.0f} % CI "
NONE = "–"
"""A cell without a value."""


def said(text: str) -> str:
    """A text whose sentences name the interval once each."""
    parts = (part.partition(CI) for part in text.split(". "))
    return ". ".join(head + mark + rest.replace(CI, "") for head, mark, rest in parts)


def bare(text: str) -> str:
    """A text that does not name the interval."""
    return text.replace(CI, "")


def between(mean: str, found: Interval, text: Callable[[float], str]) -> str:
    """A mean that is written already, and its interval where there is one."""
    if not math.isfinite(found.half):
        return mean
    return f"{mean} ({CI}{text(found.low)} to {text(found.high)})"


def aside(text: str) -> str:
    """`(2 %, 95 % CI 1 to 3)` of `2 % (95 % CI 1 to 3)`."""
    return f"({text.replace(' (', ', ', 1).removesuffix(')')})"


def hundred(value: float, digits: int, sign: str = "") -> str:
    """100 times `value`, without a minus before zero."""
    return f"{round(100 * value, digits) + 0.0:{sign},.{digits}f}"


def percent(found: Interval, sign: str = "", digits: int | None = None) -> str:
    """A share with its interval; by default with tenths below 10 %. sign: as in a format."""
    digits = (0 if abs(found.mean) >= 0.1 else 1) if digits is None else digits
    mean = f"{hundred(found.mean, digits, sign)} %"
    return between(mean, found, lambda value: hundred(value, digits))


def effect(log_ratio: Interval | None) -> str:
    """What a log ratio makes of a rate: `+85 % (95 % CI 80 to 90)`."""
    return NONE if log_ratio is None else percent(log_ratio.mapped(grown), "+")


def points(found: Interval) -> str:
    """A difference of shares, in percentage points."""
    mean = f"{hundred(found.mean, 1)} percentage points"
    return between(mean, found, lambda value: hundred(value, 1))


def ratio(log_ratio: Interval | None) -> str:
    """A log ratio as `1.78 (95 % CI 1.70 to 1.87)`."""
    if log_ratio is None:
        return NONE
    mean = f"{math.exp(log_ratio.mean):.3g}"
    return between(mean, log_ratio, lambda value: f"{math.exp(value):.3g}")


def share(value: float, digits: int = 0) -> str:
    """A share as a percentage."""
    return f"{hundred(value, digits)} %"


def amount(value: float) -> str:
    """A mean count; tenths below a hundred."""
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def mean_text(value: float | None, digits: int = 1) -> str:
    """A mean, or a dash."""
    return NONE if value is None else f"{value:,.{digits}f}"


def listed(items: Iterable[str], last: str = "and") -> str:
    """`a, b and c`."""
    words = list(items)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def counted(count: int, noun: str) -> str:
    """`1 change`, `2 changes`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"

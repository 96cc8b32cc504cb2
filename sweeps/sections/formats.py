"""How numbers are written: an `Interval` becomes text here, and nowhere before.

Tables write `+87 % (80 to 94)`; the first interval of a sentence is `named`: `(95 % CI 80 to 94)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from hwmodel.measure.student import LEVEL
from sweeps.analyse.statistics import Interval, grown
from sweeps.plan.variant import AS_DESCRIBED

if TYPE_CHECKING:
    from hwmodel.measure.racm import Condition

CI = f"{100 * LEVEL:.0f} % CI "
SHOWN = 3
"""Names that a sentence lists; tables have all."""
NONE = "–"
"""A cell without a value."""
_TIMES = 5.0
"""Ratios from here on are written as such, not as percentages of gain."""
_MOST = 10.0
"""Ends of intervals beyond this share are not written out."""


def between(
    interval: Interval,
    text: Callable[[float], str],
    unit: str = "",
    named: bool = False,
    sign: str = "",
) -> str:
    """A mean and its interval where it is finite: `3 s (1 to 5)`. sign: before the mean."""
    mean = f"{sign}{text(interval.mean)}{unit}"
    if not math.isfinite(interval.half):
        return mean
    return f"{mean} ({CI * named}{text(interval.low)} to {text(interval.high)})"


def hundred(value: float, digits: int) -> str:
    """100 times `value`, without a minus before zero."""
    return f"{round(100 * value, digits) + 0.0:,.{digits}f}"


def percent(
    interval: Interval, signed: bool = False, digits: int | None = None, named: bool = False
) -> str:  # fmt: skip
    """A share with its interval; by default with tenths below 10 %. signed: with a plus."""
    chosen = (0 if abs(interval.mean) >= 0.1 else 1) if digits is None else digits

    def text(value: float) -> str:
        return hundred(value, chosen) if value < _MOST else f"over {hundred(_MOST, 0)}"

    return between(interval, text, " %", named, "+" * (signed and text(interval.mean)[0] != "-"))


def gain(interval: Interval, signed: bool = True, named: bool = False) -> str:
    """What a rate gains: `+85 % (80 to 90)`, or `17 times (15 to 19)` where that is many."""
    factor = interval.mapped(lambda part: 1 + part)
    if factor.mean < _TIMES:
        return percent(interval, signed, named=named)
    return between(factor, "{:,.3g}".format, " times", named)


def more(interval: Interval, than: str, word: str = "more", named: bool = False) -> str:
    """`85 % (80 to 90) more than odma`, or `17 times (15 to 19) the rate of odma`."""
    rest = f"{word} than" if interval.mean + 1 < _TIMES else "the rate of"
    return f"{gain(interval, False, named)} {rest} {than}"


def effect(log_ratio: Interval | None, named: bool = False) -> str:
    """What a log ratio makes of a rate, as `gain` has it."""
    return NONE if log_ratio is None else gain(log_ratio.mapped(grown), named=named)


def either_way(interval: Interval) -> str:
    """The most that a difference may be, whichever sign it has: `at most 1.2 % either way`."""
    most = max(abs(interval.low), abs(interval.high))
    return f"at most {hundred(most, 0 if most >= 0.1 else 1)} % either way"


def at_most(part: float) -> str:
    """A bound, rounded up: `at most 1.2 %`; one of twice or more says nothing."""
    if not part < 1:
        return "unknown how far"
    digits = 0 if part >= 0.1 else 1
    return f"at most {math.ceil(100 * part * 10**digits - 1e-9) / 10**digits:,.{digits}f} %"


def ratio(log_ratio: Interval | None, named: bool = False) -> str:
    """A log ratio as `1.78 (1.70 to 1.87)`."""
    if log_ratio is None:
        return NONE
    factor = log_ratio.mapped(lambda value: grown(value) + 1)
    return between(factor, _factor, named=named)


def _factor(value: float) -> str:
    return f"{value:.3g}" if 0.001 <= value < 1000 else "over 1,000" if value > 1 else "under 0.001"


def points(interval: Interval) -> str:
    """A difference of shares, in percentage points."""
    return between(interval, lambda value: hundred(value, 1))


def share(value: float, digits: int = 0) -> str:
    """A share as a percentage."""
    return f"{hundred(value, digits)} %"


def listed(items: Iterable[str], last: str = "and") -> str:
    """`a, b and c`; nothing of none."""
    *words, end = list(items) or [""]
    return f"{', '.join(words)} {last} {end}" if words else end


def some(names: Collection[str]) -> str:
    """The first of these names, and how many others; nothing of none."""
    rest = len(names) - SHOWN
    return listed([*[*names][:SHOWN], *([f"{rest} other{'s' * (rest > 1)}"] if rest > 0 else [])])


def counted(count: int, noun: str) -> str:
    """`1 change`, `2 changes`, `3 memories`."""
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {noun if count == 1 else many}"


def cpu_text(minutes: float) -> str:
    """An estimate of CPU time: below a minute what a process does once counts as much."""
    return "less than a CPU minute" if minutes < 1 else f"about {minutes:.1f} CPU minutes"


def size_text(size: int) -> str:
    """`16 KiB`, `48 B`."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def condition_text(condition: Condition) -> str:
    """All of a condition of random access."""
    window = condition.window_bytes
    parts = [f"read share {share(condition.read_share)}", f"queues {_queues(condition)}"]
    return ", ".join([*parts, *([] if window is None else [f"window {size_text(window)}"])])


def difference_text(condition: Condition, described: Condition) -> str:
    """What distinguishes a condition from the described one."""
    if condition == described:
        return AS_DESCRIBED
    if condition.read_share != described.read_share:
        return f"read share {share(condition.read_share)}"
    if condition.window_bytes != described.window_bytes:
        return f"window {size_text(condition.window_bytes or 0)}"
    return f"queues {_queues(condition)}"


def _queues(condition: Condition) -> str:
    reads, writes = condition.read_queue, condition.write_queue
    return str(reads) if reads == writes else f"{reads} and {writes}"


_CONFIDENCE = {"A": "two open sources", "B": "one source", "C": "derived", "D": "assumed in part"}


def confidence_text(letter: str) -> str:
    """A letter of confidence, and what it stands for."""
    return f"{letter}, {_CONFIDENCE.get(letter, 'set here')}"

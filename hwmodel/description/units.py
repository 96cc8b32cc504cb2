"""Physical quantities as they are written in descriptions, and the one conversion to integer
ticks.

Conventions used everywhere: GB and TB are powers of ten, KiB/MiB/GiB powers of two; times are kept
as exact fractions of a nanosecond until `Clock.ticks` rounds them up once.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BeforeValidator

from hwmodel.description.written import WithJsonSchema, text

_QUANTITY = re.compile(r"^\s*(-?[0-9][0-9_]*(?:\.[0-9]+)?)\s*([A-Za-z/%µ]+)\s*$")

SCALES: dict[str, dict[str, Fraction]] = {
    "time": {
        "ps": Fraction(1, 1000), "ns": Fraction(1), "us": Fraction(1000), "µs": Fraction(1000),
        "ms": Fraction(10**6), "s": Fraction(10**9),
    },
    "size": {
        "B": Fraction(1), "KiB": Fraction(2**10), "MiB": Fraction(2**20), "GiB": Fraction(2**30),
        "TiB": Fraction(2**40), "KB": Fraction(10**3), "MB": Fraction(10**6), "GB": Fraction(10**9),
        "TB": Fraction(10**12),
    },
    "bandwidth": {
        "MB/s": Fraction(10**6), "GB/s": Fraction(10**9), "TB/s": Fraction(10**12),
    },
    "data rate": {"MT/s": Fraction(10**6), "GT/s": Fraction(10**9)},
    "compute": {"GFLOPS": Fraction(10**9), "TFLOPS": Fraction(10**12), "PFLOPS": Fraction(10**15)},
    "energy": {"fJ": Fraction(1, 1000), "pJ": Fraction(1), "nJ": Fraction(1000)},
    "power": {"mW": Fraction(1), "W": Fraction(1000)},
}  # fmt: skip

EXAMPLES = {
    "time": "18ns", "size": "512B or 24GiB", "bandwidth": "307.2GB/s", "data rate": "6400MT/s",
    "compute": "96TFLOPS", "energy": "909pJ", "power": "12mW",
}  # fmt: skip


def parse_quantity(text: object, dimension: str) -> Fraction:
    """Read `text` such as "18ns" into the dimension's base unit (ns, B, B/s, FLOP/s, pJ, mW).

    Raises ValueError naming the units that would do.
    """
    if not isinstance(text, str):
        raise ValueError(f"expected {_wanted(dimension)}; got {text!r}")
    return _parsed(text, dimension)


def _wanted(dimension: str) -> str:
    return f"a {dimension} with its unit, such as {EXAMPLES[dimension]}"


@lru_cache(maxsize=4096)
def _parsed(text: str, dimension: str) -> Fraction:
    units = SCALES[dimension]
    match = _QUANTITY.match(text)
    if match is None:
        raise ValueError(f"expected {_wanted(dimension)}; got {text!r}")
    number, unit = match.groups()
    if unit not in units:
        raise ValueError(f"unit {unit!r} is not a {dimension}; expected one of {', '.join(units)}")
    value = Fraction(number.replace("_", "")) * units[unit]
    if value < 0:
        raise ValueError(f"a {dimension} cannot be negative; got {text!r}")
    return value


def _whole(dimension: str, at_least: int = 0):  # type: ignore[no-untyped-def]
    def parse(value: object) -> object:
        if isinstance(value, int) and not isinstance(value, bool):
            raise ValueError(f"expected a {dimension} with its unit, such as {EXAMPLES[dimension]}")
        result = parse_quantity(value, dimension)
        if result.denominator != 1:
            raise ValueError(f"{value!r} is not a whole number of bytes")
        if result < at_least:
            raise ValueError(f"{value!r} is below the least sensible value, {at_least}")
        return int(result)

    return parse


def _real(dimension: str):  # type: ignore[no-untyped-def]
    def parse(value: object) -> object:
        try:
            return float(parse_quantity(value, dimension))
        except OverflowError:
            raise ValueError(f"{dimension} out of range") from None

    return parse


def written(dimension: str) -> WithJsonSchema:
    """How a quantity is written, for the schema of editors."""
    units = "|".join(SCALES[dimension])
    example = EXAMPLES[dimension].split(" or ")[0]
    return text(rf"^\s*[0-9][0-9_]*(\.[0-9]+)?\s*({units})\s*$", example)


def _percent(value: object) -> object:
    match = _QUANTITY.match(value) if isinstance(value, str) else None
    if match is None or match[2] != "%" or not 0 < float(match[1].replace("_", "")) < 100:
        raise ValueError(f"expected a percentage above 0%, such as 4%; got {value!r}")
    return float(match[1].replace("_", "")) / 100


def _exact(value: object) -> object:
    return parse_quantity(value, "time")


Bytes = Annotated[int, BeforeValidator(_whole("size")), written("size")]
"""Field type: a size such as `24GiB`; the value is bytes."""
PositiveBytes = Annotated[int, BeforeValidator(_whole("size", 1)), written("size")]
"""Field type: a size above zero; the value is bytes."""
Nanoseconds = Annotated[float, BeforeValidator(_real("time")), written("time")]
"""Field type: a time such as `100ns`; the value is nanoseconds."""
Percent = Annotated[
    float, BeforeValidator(_percent), text(r"^\s*[0-9][0-9_]*(\.[0-9]+)?\s*%\s*$", "4%")
]
"""Field type: a percentage such as `4%`, above zero and below 100; the value is a share of one."""
ExactNanoseconds = Annotated[Fraction, BeforeValidator(_exact), written("time")]
"""Field type: a time kept as an exact fraction of nanoseconds."""
BytesPerSecond = Annotated[float, BeforeValidator(_real("bandwidth")), written("bandwidth")]
"""Field type: a bandwidth such as `307.2GB/s`; the value is bytes per second."""
TransfersPerSecond = Annotated[float, BeforeValidator(_real("data rate")), written("data rate")]
"""Field type: the rate of a data pin such as `6400MT/s`; the value is bits per second."""
FlopsPerSecond = Annotated[float, BeforeValidator(_real("compute")), written("compute")]
"""Field type: a compute rate such as `96TFLOPS`; the value is FLOP per second."""
Picojoules = Annotated[float, BeforeValidator(_real("energy")), written("energy")]
"""Field type: an energy such as `909pJ`; the value is picojoules."""
Milliwatts = Annotated[float, BeforeValidator(_real("power")), written("power")]
"""Field type: a power such as `12mW`; the value is milliwatts."""


@dataclass(frozen=True)
class Clock:
    """A command clock: `tck_ns` nanoseconds a clock (CK), `ticks_per_ck` integer ticks in it."""

    tck_ns: Fraction
    ticks_per_ck: int = 1

    def ticks(self, clocks: Fraction) -> int:
        """Ticks that cover `clocks` CK, rounded up."""
        return math.ceil(clocks * self.ticks_per_ck)

    def clocks_of_ns(self, ns: Fraction) -> Fraction:
        """Clocks that cover `ns` nanoseconds, rounded up to a whole tick (JEDEC's ceiling)."""
        return Fraction(math.ceil(ns / self.tck_ns * self.ticks_per_ck), self.ticks_per_ck)

    def ns_of_ticks(self, ticks: float) -> float:
        """Nanoseconds in `ticks` ticks."""
        return ticks * float(self.tck_ns) / self.ticks_per_ck


def _dimension(value: Any) -> str | None:
    """What an axis value measures, '' for a bare number, None for no number."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return ""
    for dimension in SCALES:
        try:
            parse_quantity(value, dimension)
        except ValueError:
            continue
        return dimension
    return None


def number(value: Any) -> float | None:
    """A number, or a quantity in its base unit; None for what is neither."""
    dimension = _dimension(value)
    if dimension is None:
        return None
    return float(parse_quantity(value, dimension)) if dimension else float(value)

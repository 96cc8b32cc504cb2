"""How requests arrive: the process, and how its rate moves over time.

Poisson and gamma arrivals draw gaps in units of the mean gap, so that the same requests come at
every rate. A rate that moves stretches and squeezes that time: the n-th request comes when the rate
so far adds up to what the n-th gap says (time change of a point process; Cox and Isham 1980).
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from hwmodel.description.description import DescriptionError, Strict, checked
from policies.requests.requests import FloatArray, Trace
from policies.requests.trace_formats import read_text

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]

_SPANS = ("second", "minute", "hour", "day")
_MOST_PARTS = 10**7
"""Longest envelope taken, so that a slip in its first column does not fill the memory."""


class RateOverTime(Strict):
    """How the rate moves about its mean, which stays as asked for: one of `steps`, `envelope`."""

    steps: Annotated[list[NotNegative], Field(min_length=1)] | None = None
    """Relative rates of equal parts of the period, such as [1, 3, 0.5]."""
    envelope: str | None = None
    """Such rates in a file: CSV, plain or gzip, with a header; first column a count of seconds,
    minutes, hours or days (a row that is missing is 0), second the rate. A relative path starts at
    the workload's file."""
    sha256: str | None = None
    """Of the envelope, noted when the workload is read."""
    period_s: Positive | None = None
    """How long it takes, and then begins again. None: once over the run, however long that is."""

    @checked
    def _one_of_two(self) -> None:
        if (self.steps is None) == (self.envelope is None):
            raise ValueError("expected either steps or envelope")
        if self.steps is not None and not any(self.steps):
            raise ValueError("steps: expected a rate above 0")

    def rates(self) -> FloatArray:
        """The relative rates, float64 (parts,). Raises DescriptionError as `read_envelope`."""
        if self.steps is not None:
            return np.array(self.steps, np.float64)
        assert self.envelope is not None
        return read_envelope(Path(self.envelope))


class ExponentialTime(Strict):
    """An exponential time of this mean."""

    mean_s: Positive
    """In seconds."""


class Arrivals(Strict):
    """How requests arrive; the first at time 0, as soon as the rate is above 0.

    `poisson`; `gamma`: independent gaps with coefficient of variation `cv`; `fixed`: equal gaps;
    `all_at_once`: all at time 0, whatever the rate; `trace`: the trace's times, scaled to the rate;
    `closed`: so many `clients` send a request at time 0, and each the next one, in order,
    `think_s` after its last answer; there is no rate.
    """

    process: Literal["poisson", "gamma", "fixed", "all_at_once", "trace", "closed"] = "poisson"
    """When requests come."""
    cv: Positive | None = None
    """Coefficient of variation of the gaps (gamma)."""
    clients: Annotated[int, Field(ge=1)] | None = None
    """Of a closed loop, each with one request at a time."""
    think_s: NotNegative | ExponentialTime = 0.0
    rate_over_time: RateOverTime | None = None

    @checked
    def _options_fit_the_process(self) -> None:
        if self.process == "gamma" and self.cv is None:
            raise ValueError("gamma arrivals need cv, the gaps' coefficient of variation")
        if self.process != "gamma" and self.cv is not None:
            raise ValueError(f"cv belongs to gamma arrivals, not to {self.process}")
        if (self.process == "closed") != (self.clients is not None):
            raise ValueError("clients: stands with closed arrivals, and only there")
        if self.process != "closed" and self.think_s != 0:
            raise ValueError(f"think_s belongs to closed arrivals, not to {self.process}")
        if self.rate_over_time is not None and self.process in ("all_at_once", "trace", "closed"):
            raise ValueError(f"rate_over_time does not go with {self.process} arrivals")


def arrival_times(
    arrivals: Arrivals, trace: Trace | None, count: int, rate_per_s: float | None,
    rng: np.random.Generator, stretch: int = 0,
) -> FloatArray:  # fmt: skip
    """Times of `count` requests, float64 (count,), seconds.

    `stretch`: with `trace` arrivals, the how many-th run of `count` requests of the trace (from 0).
    Raises DescriptionError where the rate does not suit the process.
    """
    if arrivals.process in ("all_at_once", "closed"):
        return np.zeros(count)
    if arrivals.process == "trace":
        assert trace is not None
        return _trace_times(trace, count, rate_per_s, stretch)
    if rate_per_s is None:
        raise DescriptionError(f"{arrivals.process} arrivals need a request rate", path="arrivals")
    turns = _turns(arrivals, count, rng)
    if arrivals.rate_over_time is None:
        return turns / rate_per_s
    return _moved(turns, arrivals.rate_over_time, rate_per_s)


def think_times(arrivals: Arrivals, count: int, rng: np.random.Generator) -> FloatArray:
    """Seconds from an answer to each request of a closed loop, float64 (count,), nan for the first
    of each client and where the loop is open."""
    if arrivals.clients is None:
        return np.full(count, np.nan)
    if isinstance(arrivals.think_s, ExponentialTime):
        think = arrivals.think_s.mean_s * rng.standard_exponential(count)
    else:
        think = np.full(count, arrivals.think_s)
    think[: arrivals.clients] = np.nan
    return think


def _turns(arrivals: Arrivals, count: int, rng: np.random.Generator) -> FloatArray:
    """Arrivals in units of the mean gap, float64 (count,)."""
    if arrivals.process == "fixed":
        return np.arange(count, dtype=np.float64)
    if arrivals.process == "gamma":
        assert arrivals.cv is not None
        shape = arrivals.cv**-2
        gaps = rng.standard_gamma(shape, count - 1) / shape
    else:
        gaps = rng.standard_exponential(count - 1)
    return np.concatenate(([0.0], np.cumsum(gaps)))


def _moved(turns: FloatArray, moving: RateOverTime, rate_per_s: float) -> FloatArray:
    """When the rate so far adds up to `turns`, seconds."""
    rates = moving.rates()
    period_s = moving.period_s or len(turns) / rate_per_s
    whole, rest = np.divmod(turns / rate_per_s, period_s)
    share = rest / period_s
    edges = np.concatenate(([0.0], np.cumsum(rates) / rates.sum()))
    part = np.minimum(np.searchsorted(edges, share, side="right") - 1, np.flatnonzero(rates)[-1])
    inside = (share - edges[part]) / (edges[part + 1] - edges[part])
    times: FloatArray = (whole + (part + np.minimum(inside, 1.0)) / len(rates)) * period_s
    return np.maximum.accumulate(times)  # against rounding where parts meet


def _trace_times(trace: Trace, count: int, rate_per_s: float | None, stretch: int) -> FloatArray:
    """A stretch of the trace's times from 0; a repeat follows after the trace's mean gap."""
    own = trace.requests().arrival_s
    size = len(own)
    period = (own[-1] - own[0]) * size / max(size - 1, 1)
    index = np.arange(count) + stretch * count
    times: FloatArray = own[index % size] + period * (index // size)
    times -= times[0]
    if rate_per_s is None or count == 1:
        return times
    if times[-1] == 0:
        raise DescriptionError("all requests arrive at once; no rate to scale", trace.path)
    return times * ((count - 1) / (times[-1] * rate_per_s))


def read_envelope(path: Path) -> FloatArray:
    """The rates of an envelope file (see `RateOverTime`), float64 (parts,).

    Raises DescriptionError with file and line.
    """
    reader = csv.reader(io.StringIO(read_text(path), newline=""))
    try:
        return _rates(reader)
    except (ValueError, csv.Error) as error:
        raise DescriptionError(str(error), path, max(reader.line_num, 1)) from None


def _rates(rows: Iterator[list[str]]) -> FloatArray:
    """Raises ValueError about the row just read."""
    header = next(rows, [])
    if len(header) < 2 or header[0] not in _SPANS:
        known = ", ".join(_SPANS)
        raise ValueError(f"expected a header whose first column is one of {known}, then the rate")
    found: dict[int, float] = {}
    for row in rows:
        if not row:
            continue
        if len(row) != len(header):
            raise ValueError(f"expected {len(header)} fields ({','.join(header)}); got {len(row)}")
        at, rate = _whole(row[0], header[0]), _rate(row[1], header[1])
        if found and at <= next(reversed(found)):
            raise ValueError(f"{header[0]} {row[0]!r} is not after the row above it")
        found[at] = rate
    if not any(found.values()):
        raise ValueError("expected a rate above 0")
    first = next(iter(found))
    if next(reversed(found)) - first >= _MOST_PARTS:
        raise ValueError(f"more than {_MOST_PARTS} {header[0]}s from the first row to the last")
    rates = np.zeros(next(reversed(found)) - first + 1)
    rates[np.array(list(found)) - first] = list(found.values())
    return rates


def _whole(text: str, column: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"{column}: expected a whole number, 0 or more; got {text!r}")
    return int(text)


def _rate(text: str, column: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 <= rate < math.inf:
        raise ValueError(f"{column}: expected a rate, 0 or more; got {text!r}")
    return rate

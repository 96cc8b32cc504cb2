"""Traces of a header and a row for each request (CSV): ours, Azure's and BurstGPT's."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from policies.requests.trace_rows import Columns, TraceRows

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class _Format(NamedTuple):
    """A CSV format. `time`, `prompt`, `output`: names of its columns, `header`: of all of them."""

    header: tuple[str, ...]
    time: str
    prompt: str
    output: str
    seconds: Callable[[str, str], float]
    """The time in a field, in any unit that `per_second` divides."""
    per_second: float = 1.0
    from_zero: bool = True
    """Whether times count from the first row."""
    may_lack_times: bool = False
    least_prompt: int = 1
    """0: rows with an empty prompt are dropped, not refused."""


class CsvTrace:
    """A trace with a header and a row for each request."""

    def __init__(self, lines: Iterable[str], max_tokens: int) -> None:
        self._reader = csv.reader(lines)
        self._most = max_tokens

    @property
    def line(self) -> int:
        """The line just read."""
        return max(self._reader.line_num, 1)

    def columns(self) -> Columns:
        """Raises ValueError or csv.Error about the row just read."""
        kind, header = _format(self._reader)
        at = [header.index(name) for name in (kind.time, kind.prompt, kind.output)]
        rows = TraceRows()
        timed: bool | None = None
        for row in self._reader:
            if not row:
                continue
            if len(row) != len(header):
                expected = f"{len(header)} fields ({','.join(header)})"
                raise ValueError(f"expected {expected}; got {len(row)}")
            time, prompt, output = (row[column] for column in at)
            if timed is None:
                timed = time != "" or not kind.may_lack_times
            if timed:
                rows.time(kind.seconds(time, kind.time), kind.time, time)
            elif time:
                raise ValueError(f"{kind.time} is {time!r} here but empty in the first row")
            rows.add(
                _tokens(prompt, kind.prompt, kind.least_prompt, self._most),
                _tokens(output, kind.output, 0, self._most),
            )
        return rows.columns(bool(timed), kind.from_zero, kind.per_second)


def _format(reader: Iterator[list[str]]) -> tuple[_Format, tuple[str, ...]]:
    """The format whose columns the header names, and the header. Raises ValueError."""
    header = tuple(name.strip() for name in next(reader, []))
    if not any(header):
        raise ValueError(f"expected a header on the first line; {_KNOWN}")
    for kind in FORMATS:
        if set(kind.header) <= set(header) <= set(kind.header) | _MAY_BE_THERE:
            return kind, header
    raise ValueError(f"unknown header {','.join(header)!r}; {_KNOWN}")


def _tokens(text: str, column: str, at_least: int, at_most: int) -> int:
    try:
        tokens = int(text)
    except ValueError:
        tokens = -1
        if not text.strip().removeprefix("-").isdecimal():
            raise ValueError(f"{column}: expected a whole number of tokens; got {text!r}") from None
    if not at_least <= tokens <= at_most:
        raise ValueError(f"{column}: expected {at_least} to {at_most} tokens; got {text!r}")
    return tokens


def _plain_seconds(text: str, column: str) -> float:
    return _seconds(text, column, " (or empty in every row)")


def _seconds(text: str, column: str, otherwise: str = "") -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{column}: expected seconds, 0 or more{otherwise}; got {text!r}")
    return seconds


def _timestamp_us(text: str, column: str) -> float:
    """Microseconds since 1970 (exact in a float until the year 2255); no zone means UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        example = "2023-11-16 18:15:46.6805900"
        raise ValueError(f"{column}: expected a time such as {example}; got {text!r}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


FORMATS = (
    _Format(
        ("arrival_s", "prompt_tokens", "output_tokens"),
        "arrival_s", "prompt_tokens", "output_tokens", _plain_seconds,
        from_zero=False, may_lack_times=True,
    ),
    _Format(
        ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        "TIMESTAMP", "ContextTokens", "GeneratedTokens", _timestamp_us, per_second=1e6,
    ),
    _Format(
        ("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type"),
        "Timestamp", "Request tokens", "Response tokens", _seconds, least_prompt=0,
    ),
)  # fmt: skip
"""The CSV formats."""
_MAY_BE_THERE = {"Session ID", "Elapsed time"}
"""Columns of later releases of BurstGPT, which are not used."""
_KNOWN = "known headers: " + " and ".join(",".join(kind.header) for kind in FORMATS)

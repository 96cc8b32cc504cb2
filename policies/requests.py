"""The request stream a serving system sees, and the trace files it can be read from.

Known trace files, plain or gzip (told apart by their first two bytes, not by their name):
- ours: `arrival_s,prompt_tokens,output_tokens`, where `arrival_s` may be empty in every row;
- Azure LLM inference: `TIMESTAMP,ContextTokens,GeneratedTokens`
  (github.com/Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md).
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hwmodel.description import DescriptionError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MAX_TOKENS = 10**9
"""Longest length taken: far above any context window, and sums of many stay inside int64."""

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 1 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, eq=False)
class Requests:
    """`n` requests in order of arrival.

    arrival_s: float64 (n,), seconds, finite, >= 0, non-decreasing.
    prompt_tokens, output_tokens: int64 (n,), each 1 to MAX_TOKENS.

    All arrays are C-contiguous. Raises ValueError when a rule above is broken.
    """

    arrival_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray

    def __post_init__(self) -> None:
        arrival_s = np.ascontiguousarray(self.arrival_s, dtype=np.float64)
        prompt_tokens = token_array(self.prompt_tokens, "prompt_tokens")
        output_tokens = token_array(self.output_tokens, "output_tokens")
        if arrival_s.ndim != 1 or not len(arrival_s) == len(prompt_tokens) == len(output_tokens):
            raise ValueError(
                f"arrays of different lengths: {arrival_s.shape} arrival_s, "
                f"{prompt_tokens.shape} prompt_tokens, {output_tokens.shape} output_tokens",
            )
        if not np.isfinite(arrival_s).all() or (arrival_s < 0).any():
            raise ValueError("arrival_s must be finite and not negative")
        if (np.diff(arrival_s) < 0).any():
            raise ValueError("arrival_s must not decrease")
        object.__setattr__(self, "arrival_s", arrival_s)
        object.__setattr__(self, "prompt_tokens", prompt_tokens)
        object.__setattr__(self, "output_tokens", output_tokens)

    def __len__(self) -> int:
        return len(self.arrival_s)

    def __getitem__(self, rows: slice) -> Requests:
        """The requests of a slice, times unchanged."""
        if not isinstance(rows, slice):
            raise TypeError(f"take a slice of requests, such as requests[:100]; got {rows!r}")
        return Requests(self.arrival_s[rows], self.prompt_tokens[rows], self.output_tokens[rows])

    def take(self, rows: ArrayLike) -> Requests:
        """The requests at these indices, or where this mask is true, in order of arrival."""
        index = np.asarray(rows)
        if index.size == 0 and index.dtype != np.bool_:
            index = index.astype(np.int64)
        return Requests(self.arrival_s[index], self.prompt_tokens[index], self.output_tokens[index])


@dataclass(frozen=True, eq=False)
class Trace:
    """What a trace file says: lengths in the file's order, and arrivals where it has them.

    arrival_s: float64 (n,) seconds, or None when the file has no times.
    prompt_tokens, output_tokens: int64 (n,), each 1 to MAX_TOKENS.
    dropped: rows left out because their output was empty.
    """

    arrival_s: FloatArray | None
    prompt_tokens: IntArray
    output_tokens: IntArray
    dropped: int
    path: Path

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    def requests(self) -> Requests:
        """The trace as a request stream. Raises DescriptionError when the file has no times."""
        if self.arrival_s is None:
            raise DescriptionError(
                "arrival_s is empty throughout: the trace has lengths but no times",
                file=self.path,
            )
        return Requests(self.arrival_s, self.prompt_tokens, self.output_tokens)


def token_array(values: ArrayLike, name: str) -> IntArray:
    """`values` as C-contiguous int64 (n,), lengths from 1 to MAX_TOKENS; else ValueError."""
    tokens = np.asarray(values)
    if tokens.ndim != 1:
        raise ValueError(f"{name} must have one dimension; got shape {tokens.shape}")
    if tokens.size and tokens.dtype.kind not in "iu":
        raise ValueError(f"{name} must be whole numbers; got {tokens.dtype}")
    if tokens.size and (tokens.min() < 1 or tokens.max() > MAX_TOKENS):
        raise ValueError(f"{name} must be 1 to {MAX_TOKENS}; got {tokens.min()} to {tokens.max()}")
    return np.ascontiguousarray(tokens, dtype=np.int64)


def load_trace(path: str | Path) -> Trace:
    """Read a trace file of a known format (see the module), dropping rows with an empty output.

    Azure timestamps become seconds since the file's first row, to the microsecond.
    Raises DescriptionError with file and line for whatever is wrong with the file.
    """
    path = Path(path)
    reader = csv.reader(io.StringIO(_read_text(path), newline=""))
    try:
        return _read_rows(path, reader)
    except csv.Error as error:
        raise DescriptionError(f"not a CSV row: {error}", path, max(reader.line_num, 1)) from None
    except ValueError as error:
        raise DescriptionError(str(error), path, max(reader.line_num, 1)) from None


def _read_text(path: Path) -> str:
    """The file's text, unzipped. Raises DescriptionError when it cannot be had."""
    content = bytearray()
    try:
        with path.open("rb") as raw:
            zipped = raw.peek(2)[:2] == _GZIP_MAGIC
            file = gzip.GzipFile(fileobj=raw) if zipped else raw
            while chunk := file.read1(_CHUNK_BYTES):
                content += chunk
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise DescriptionError("no such file", path) from None
    except IsADirectoryError:
        raise DescriptionError(
            "is a directory; expected a trace (CSV, plain or gzip)", path
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        line = content.count(b"\n") + 1
        raise DescriptionError("the gzip data ends or breaks here", path, line) from None
    except OSError as error:
        raise DescriptionError(f"cannot be read: {error.strerror or error}", path) from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DescriptionError(
            f"expected CSV text (UTF-8), plain or gzip; got byte 0x{content[error.start]:02x}",
            path, line,
        ) from None  # fmt: skip


def _read_rows(path: Path, reader: Iterator[list[str]]) -> Trace:
    """Parse header and rows. Raises ValueError or csv.Error about the row just read."""
    header = tuple(name.strip() for name in next(reader, []))
    if not any(header):
        raise ValueError(f"expected a header on the first line; {_KNOWN_HEADERS}")
    if header not in FORMATS:
        raise ValueError(f"unknown header {','.join(header)!r}; {_KNOWN_HEADERS}")
    seconds = FORMATS[header]
    start: float | None = None
    before = -math.inf
    arrivals, prompts, outputs = array("d"), array("q"), array("q")
    timed: bool | None = None
    dropped = 0
    for row in reader:
        if not row:
            continue
        if len(row) != 3:
            raise ValueError(f"expected 3 fields ({','.join(header)}); got {len(row)}")
        time, prompt, output = row
        if timed is None:
            timed = time != "" or seconds is not _plain_seconds
        if timed:
            now = seconds(time, header[0])
            if now < before:
                raise ValueError(f"{header[0]} {time!r} is before the row above it; sort by time")
            before = now
            start = now if start is None else start
        elif time:
            raise ValueError(f"{header[0]} is {time!r} here but empty in the first row")
        prompt_tokens = _tokens(prompt, header[1], at_least=1)
        output_tokens = _tokens(output, header[2], at_least=0)
        if output_tokens == 0:
            dropped += 1
            continue
        arrivals.append(before if timed else 0.0)
        prompts.append(prompt_tokens)
        outputs.append(output_tokens)
    if not prompts:
        raise ValueError(f"no requests: {dropped} rows, all with an empty output")
    arrival_s = np.array(arrivals)
    if seconds is _timestamp_us:
        assert start is not None
        arrival_s = (arrival_s - start) / 1e6
    prompt_array, output_array = np.array(prompts, np.int64), np.array(outputs, np.int64)
    return Trace(arrival_s if timed else None, prompt_array, output_array, dropped, path)


def _tokens(text: str, column: str, at_least: int) -> int:
    try:
        tokens = int(text)
    except ValueError:
        tokens = -1
        if not text.strip().removeprefix("-").isdecimal():
            raise ValueError(f"{column}: expected a whole number of tokens; got {text!r}") from None
    if not at_least <= tokens <= MAX_TOKENS:
        raise ValueError(f"{column}: expected {at_least} to {MAX_TOKENS} tokens; got {text!r}")
    return tokens


def _plain_seconds(text: str, column: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        rule = "expected seconds, 0 or more (or empty in every row)"
        raise ValueError(f"{column}: {rule}; got {text!r}")
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


FORMATS: dict[tuple[str, ...], Callable[[str, str], float]] = {
    ("arrival_s", "prompt_tokens", "output_tokens"): _plain_seconds,
    ("TIMESTAMP", "ContextTokens", "GeneratedTokens"): _timestamp_us,
}
"""Known headers, and how to read the time in the first column."""

_KNOWN_HEADERS = "known headers: " + " and ".join(",".join(header) for header in FORMATS)

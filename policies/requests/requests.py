"""The request stream a serving system sees, and the traces it can be read from."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hwmodel.description.description import DescriptionError
from policies.requests.trace_formats import read_trace

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MAX_TOKENS = 10**9
"""Longest length taken: far above any context window, and sums of many stay inside int64."""


@dataclass(frozen=True, eq=False)
class Requests:
    """`n` requests in order of arrival.

    arrival_s: float64 (n,), seconds, finite, >= 0, non-decreasing.
    prompt_tokens, output_tokens: int64 (n,), each 1 to MAX_TOKENS.
    prefix_id: int64 (n,), requests of one id share a prefix; -1 (None: all): none.
    prefix_tokens: int64 (n,), first tokens of the prompt that are those of the id; of two requests
    the smaller number is what they share. 0 where the id is -1 (None: all).
    samples: int64 (n,), outputs drawn at once from one prompt, 1 to MAX_TOKENS (None: 1 each); they
    are served as requests of their own (`apart`).
    think_s: float64 (n,), of a closed loop: the request is sent so many seconds after an answer, as
    answers come, or after that of its session's last turn; nan: at `arrival_s`, as all are where it
    is None.
    parent: int64 (n,), requests of one parent are samples of one prompt, each a request of its own;
    -1 (None: all): none.
    session: int64 (n,), requests of one session are its turns, in order, each sent after the answer
    to the one before; -1 (None: all): of none.
    context: int64 (n,), the session whose text a prompt goes on with: it begins with the whole of
    the turn before, its prompt and its answer; -1: what it shares is a prefix (None: session).
    forks: float64 (n,), share of a request's samples that give way in each step, to forks of the
    others (beam search), 0 to 1; 0: each goes on alone (None: all).
    tree: int64 (ids, 2), of each prefix id the one that it begins with, and how many tokens of it;
    -1: with none (None: all).

    All arrays are C-contiguous. Raises ValueError when a rule above is broken.
    """

    arrival_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray
    prefix_id: IntArray = None  # type: ignore[assignment]  # an array after __post_init__
    prefix_tokens: IntArray = None  # type: ignore[assignment]
    samples: IntArray = None  # type: ignore[assignment]
    think_s: FloatArray = None  # type: ignore[assignment]
    parent: IntArray = None  # type: ignore[assignment]
    session: IntArray = None  # type: ignore[assignment]
    context: IntArray = None  # type: ignore[assignment]
    forks: FloatArray = None  # type: ignore[assignment]
    tree: IntArray | None = None

    def __post_init__(self) -> None:
        arrival_s = np.ascontiguousarray(self.arrival_s, dtype=np.float64)
        count = len(arrival_s)
        columns = {
            "arrival_s": arrival_s,
            "prompt_tokens": token_array(self.prompt_tokens, "prompt_tokens"),
            "output_tokens": token_array(self.output_tokens, "output_tokens"),
            "prefix_id": _column(self.prefix_id, "prefix_id", count, -1, least=-1),
            "prefix_tokens": _column(self.prefix_tokens, "prefix_tokens", count, 0, least=0),
            "samples": _column(self.samples, "samples", count, 1, least=1),
            "think_s": _think(self.think_s, count),
            "parent": _column(self.parent, "parent", count, -1, least=-1),
            "session": _column(self.session, "session", count, -1, least=-1),
        }
        context = self.session if self.context is None else self.context
        columns["context"] = _column(context, "context", count, -1, least=-1)
        columns["forks"] = _shares(self.forks, count)
        if arrival_s.ndim != 1 or any(len(column) != count for column in columns.values()):
            shapes = ", ".join(f"{column.shape} {name}" for name, column in columns.items())
            raise ValueError(f"arrays of different lengths: {shapes}")
        if not np.isfinite(arrival_s).all() or (arrival_s < 0).any():
            raise ValueError("arrival_s must be finite and not negative")
        if (np.diff(arrival_s) < 0).any():
            raise ValueError("arrival_s must not decrease")
        if (columns["prefix_tokens"] > columns["prompt_tokens"]).any():
            raise ValueError("prefix_tokens must not be above prompt_tokens")
        if columns["prefix_tokens"][columns["prefix_id"] < 0].any():
            raise ValueError("prefix_tokens must be 0 where prefix_id is -1")
        if count and not np.isnan(columns["think_s"][0]):
            raise ValueError("think_s must be nan for the first requests of a closed loop")
        for name, column in columns.items():
            object.__setattr__(self, name, column)
        self._require_turns()

    def _require_turns(self) -> None:
        """Raises ValueError where a turn does not hold the one before, or the tree has a circle."""
        after = np.flatnonzero((before := self.turn_before) >= 0)
        whole = (self.prompt_tokens + self.output_tokens)[before[after]]
        held = self.context[after] >= 0
        if (self.prompt_tokens[after] < whole)[held].any():
            raise ValueError("prompt_tokens: a turn must begin with all of the one before")
        if np.isnan(self.think_s[after]).any():
            raise ValueError("think_s must be given for all turns of a session after its first")
        if self.tree is None:
            return
        ids = np.arange(len(self.tree))
        if self.prefix_id.max(initial=-1) >= len(ids) or (self.tree[:, 0] >= ids).any():
            raise ValueError("tree: a prefix must begin with one of a smaller id")

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def closed(self) -> bool:
        """Whether a request waits for an answer before it is sent."""
        return not bool(np.isnan(self.think_s).all())

    @property
    def turn_before(self) -> IntArray:
        """The request that is the turn before each, int64 (n,); -1: there is none."""
        return turns_before(self.session)

    def prefixes(self, request: int) -> tuple[tuple[int, int], ...]:
        """What a prompt begins with: (prefix id, tokens up to its end), from the root of the
        tree."""
        at, tokens = int(self.prefix_id[request]), int(self.prefix_tokens[request])
        shared: list[tuple[int, int]] = []
        while at >= 0:
            shared.append((at, tokens))
            at, least = (-1, 0) if self.tree is None else self.tree[at].tolist()
            tokens = min(tokens, least)
        return tuple(reversed(shared))

    def __getitem__(self, rows: slice) -> Requests:
        """The requests of a slice, times unchanged."""
        if not isinstance(rows, slice):
            raise TypeError(f"take a slice of requests, such as requests[:100]; got {rows!r}")
        return self._rows(rows)

    def take(self, rows: ArrayLike) -> Requests:
        """The requests at these indices, or where this mask is true, in order of arrival."""
        index = np.asarray(rows)
        if index.size == 0 and index.dtype != np.bool_:
            index = index.astype(np.int64)
        return self._rows(index)

    def apart(self) -> Requests:
        """Each sample as a request of its own, those of a request next to each other."""
        rows = np.repeat(np.arange(len(self)), self.samples)
        repeated, alone = self._rows(rows), self.samples[rows] == 1
        return replace(
            repeated, samples=np.ones(len(rows), np.int64), parent=np.where(alone, -1, rows)
        )

    def _rows(self, rows: Any) -> Requests:
        columns = {each.name: getattr(self, each.name)[rows] for each in fields(self)[:-1]}
        return Requests(**columns, tree=self.tree)


def turns_before(session: IntArray) -> IntArray:
    """Of requests of these sessions, -1 for none, which is the turn before each, int64 (n,); -1:
    there is none."""
    before = np.full(len(session), -1, np.int64)
    turns = np.flatnonzero(session >= 0)
    turns = turns[np.argsort(session[turns], kind="stable")]
    same = session[turns[1:]] == session[turns[:-1]]
    before[turns[1:][same]] = turns[:-1][same]
    return before


@dataclass(frozen=True, eq=False)
class Trace:
    """A trace file: lengths in the file's order, and arrivals where it has them.

    arrival_s: float64 (n,) seconds, or None when the file has no times.
    prompt_tokens, output_tokens: int64 (n,), each 1 to MAX_TOKENS.
    dropped: rows left out because their output (in BurstGPT also: their prompt) was empty.
    prefix_id, prefix_tokens, tree: as in `Requests`, or None if the file has none.
    session, pause_s, goes_on: as in `policies.requests.trace_formats.Columns`.
    """

    arrival_s: FloatArray | None
    prompt_tokens: IntArray
    output_tokens: IntArray
    dropped: int
    path: Path
    prefix_id: IntArray | None = None
    prefix_tokens: IntArray | None = None
    tree: IntArray | None = None
    session: IntArray | None = None
    pause_s: FloatArray | None = None
    goes_on: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    def requests(self) -> Requests:
        """The trace as a request stream. Raises DescriptionError when the file has no times."""
        if self.arrival_s is None:
            raise DescriptionError(
                "arrival_s is empty throughout: the trace has lengths but no times",
                file=self.path,
            )
        if self.prefix_id is None or self.prefix_tokens is None:
            return Requests(self.arrival_s, self.prompt_tokens, self.output_tokens)
        return Requests(
            self.arrival_s, self.prompt_tokens, self.output_tokens, self.prefix_id,
            self.prefix_tokens, tree=self.tree,
        )  # fmt: skip


def token_array(values: ArrayLike, name: str, least: int = 1) -> IntArray:
    """`values` as C-contiguous int64 (n,), numbers from `least` to MAX_TOKENS; else ValueError."""
    tokens = np.asarray(values)
    if tokens.ndim != 1:
        raise ValueError(f"{name} must have one dimension; got shape {tokens.shape}")
    if tokens.size and tokens.dtype.kind not in "iu":
        raise ValueError(f"{name} must be whole numbers; got {tokens.dtype}")
    if tokens.size and (tokens.min() < least or tokens.max() > MAX_TOKENS):
        got = f"{tokens.min()} to {tokens.max()}"
        raise ValueError(f"{name} must be {least} to {MAX_TOKENS}; got {got}")
    return np.ascontiguousarray(tokens, dtype=np.int64)


def _column(values: ArrayLike | None, name: str, count: int, default: int, least: int) -> IntArray:
    """An optional column: `default` everywhere where there is none."""
    if values is None:
        return np.full(count, default, np.int64)
    return token_array(values, name, least)


def _think(values: ArrayLike | None, count: int) -> FloatArray:
    if values is None:
        return np.full(count, np.nan)
    think_s = np.ascontiguousarray(values, dtype=np.float64)
    if np.isinf(think_s).any() or (think_s < 0).any():
        raise ValueError("think_s must be finite and not negative")
    return think_s


def _shares(values: ArrayLike | None, count: int) -> FloatArray:
    shares = np.ascontiguousarray(np.zeros(count) if values is None else values, dtype=np.float64)
    if not ((shares >= 0) & (shares <= 1)).all():
        raise ValueError("forks must be 0 to 1")
    return shares


def load_trace(path: str | Path) -> Trace:
    """Read a trace file of a known format (see `policies.requests.trace_formats`), dropping rows
    with an empty output.

    Azure, BurstGPT and Mooncake times become seconds since the file's first row.
    Raises DescriptionError with file and line for whatever is wrong with the file.
    """
    path = Path(path)
    columns = read_trace(path, MAX_TOKENS)
    return Trace(
        columns.arrival_s, columns.prompt_tokens, columns.output_tokens, columns.dropped, path,
        columns.prefix_id, columns.prefix_tokens, columns.tree, columns.session, columns.pause_s,
        columns.goes_on,
    )  # fmt: skip

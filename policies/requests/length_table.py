"""Length tables: the compact facts of a trace that keep joint lengths and their drift.

A table cuts a trace into windows in time order, each window into prompt classes (by prompt length),
and keeps for each class its share and the quantiles of its prompt and of its output lengths. Prompt
and output are independent inside a class, and related through it. `Drift` says how a run walks
through the windows.

Between quantile points lengths are interpolated log-linearly: token lengths have heavy right tails,
and a straight line from p99.5 to the maximum overstates their mean (tests state the tolerance).

`python -m policies.requests.length_table TRACE --windows 12 --prompt-classes 4` prints a table as
YAML.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

import yaml
from hwmodel.description.description import DescriptionError, Strict, checked
from policies.requests.requests import MAX_TOKENS, FloatArray, IntArray, Requests, Trace, load_trace

QUANTILES = (0, 0.02, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.85, 0.9, 0.95, 0.98, 0.995, 1)
"""Default points: dense above the median, where a few long requests make up much of the tokens."""

LEAST_REQUESTS = 20
"""A class with fewer requests than this says nothing about its quantiles; `fit` refuses it."""

_SHARE_SLACK = 0.005
"""Shares are written rounded, so their sum may miss 1 by this much; sampling rescales them."""

Drift = Literal["squeezed", "mixed", "clock"]
"""`squeezed`: a run of any length walks through all windows once, in order, by share; `mixed`: each
request comes from a window drawn by share, which is the whole trace's mixture without its drift;
`clock`: from the window in which its arrival falls, as long as the trace's own."""

Share = Annotated[float, Field(gt=0, le=1)]
Points = Annotated[list[Annotated[int, Field(ge=1, le=MAX_TOKENS)]], Field(min_length=2)]


class PromptClass(Strict):
    """Requests of a window with prompts in one range; token counts at the table's quantiles."""

    share: Share
    """Of the window's requests."""
    prompt_tokens: Points
    """Quantiles."""
    output_tokens: Points
    """Quantiles of the answers to these."""

    @checked
    def _ascending(self) -> None:
        for name in ("prompt_tokens", "output_tokens"):
            points = getattr(self, name)
            if sorted(points) != points:
                raise ValueError(f"{name} must not decrease; they are quantile points")


class TraceWindow(Strict):
    """One stretch of a trace."""

    share: Share
    """Of the table's requests."""
    span_s: Annotated[float, Field(gt=0)] | None = None
    """How long it lasted, where the trace has times; with `share` it gives the rate's drift."""
    classes: Annotated[list[PromptClass], Field(min_length=1)]
    """Prompts by length."""

    @checked
    def _whole(self) -> None:
        _require_whole([part.share for part in self.classes], "classes")


class LengthTable(Strict):
    """Prompt and output lengths of a trace, by window and prompt class (see the module)."""

    source: str | None = None
    """Public repository, commit and licence of the trace."""
    made_by: str | None = None
    """The command that prints this table from the trace."""
    requests: Annotated[int, Field(ge=1)] | None = None
    """How many requests it stands for."""
    quantiles: Annotated[list[float], Field(min_length=2)]
    """Cumulative probabilities of the quantile points, from 0 to 1."""
    windows: Annotated[list[TraceWindow], Field(min_length=1)]
    """Stretches of the day, each with its own lengths."""

    @checked
    def _consistent(self) -> None:
        levels = self.quantiles
        if levels[0] != 0 or levels[-1] != 1 or sorted(set(levels)) != levels:
            raise ValueError(f"quantiles must rise from 0 to 1; got {levels}")
        for k, window in enumerate(self.windows):
            for j, part in enumerate(window.classes):
                for name in ("prompt_tokens", "output_tokens"):
                    got = len(getattr(part, name))
                    if got != len(levels):
                        place = f"windows[{k}].classes[{j}].{name}"
                        raise ValueError(f"{place} has {got} points for {len(levels)} quantiles")
        _require_whole([window.share for window in self.windows], "windows")

    def window_of(self, count: int) -> IntArray:
        """The window each of `count` requests of a run falls in: int64 (count,), non-decreasing."""
        edges = _edges([window.share for window in self.windows])
        position = (np.arange(count) + 0.5) / count
        return np.searchsorted(edges, position, side="right").astype(np.int64)

    def windows_drawn(self, count: int, rng: np.random.Generator) -> IntArray:
        """A window drawn by share for each request: int64 (count,)."""
        edges = _edges([window.share for window in self.windows])
        return np.searchsorted(edges, rng.random(count), side="right").astype(np.int64)

    def windows_at(self, arrival_s: FloatArray, start: float) -> IntArray:
        """The window that lasts when a request arrives, int64 like `arrival_s`, which counts from a
        `start` in shares of the trace's span; after its end the trace begins again.

        Raises ValueError where windows have no `span_s`, unless there is only one.
        """
        if len(self.windows) == 1:
            return np.zeros(len(arrival_s), np.int64)
        spans = [window.span_s for window in self.windows if window.span_s is not None]
        if len(spans) < len(self.windows):
            raise ValueError("clock needs span_s in each window of the table")
        share = (start + arrival_s / sum(spans)) % 1.0
        return np.searchsorted(_edges(spans), share, side="right").astype(np.int64)

    def sample(
        self, count: int, rng: np.random.Generator, where: int | IntArray | None = None
    ) -> tuple[IntArray, IntArray]:
        """Draw (prompt_tokens, output_tokens), int64 (count,) each, in order of arrival.

        `where`: the window (counted from 0) of all requests or of each; None: `window_of`.
        Three uniforms a request, in request order: a longer run begins with the same uniforms.
        Raises ValueError when the table has no such window.
        """
        where = self.window_of(count) if where is None else np.broadcast_to(where, count)
        for window in (where.min(initial=0), where.max(initial=0)):
            if not 0 <= window < len(self.windows):
                last = len(self.windows) - 1
                raise ValueError(f"no window {window}; the table has 0 to {last}")
        uniform = rng.random((count, 3))
        prompt_tokens, output_tokens = np.empty(count, np.int64), np.empty(count, np.int64)
        levels = np.array(self.quantiles, np.float64)
        for k in np.unique(where):
            rows = np.flatnonzero(where == k)
            classes = self.windows[k].classes
            pick = np.searchsorted(_edges([c.share for c in classes]), uniform[rows, 0], "right")
            prompts = np.array([c.prompt_tokens for c in classes])
            outputs = np.array([c.output_tokens for c in classes])
            prompt_tokens[rows] = _interpolate(levels, prompts[pick], uniform[rows, 1])
            output_tokens[rows] = _interpolate(levels, outputs[pick], uniform[rows, 2])
        return prompt_tokens, output_tokens


def _edges(shares: list[float]) -> FloatArray:
    """Upper ends of all parts but the last, of a whole of 1, in order."""
    total = np.cumsum(np.array(shares, np.float64))
    edges: FloatArray = total[:-1] / total[-1]
    return edges


def _require_whole(shares: list[float], what: str) -> None:
    if abs(sum(shares) - 1) > _SHARE_SLACK:
        raise ValueError(f"shares of the {what} must sum to 1; they sum to {sum(shares):.4f}")


def _interpolate(levels: FloatArray, points: IntArray, uniform: FloatArray) -> IntArray:
    """Quantile functions `points` (n, levels) at `uniform` (n,), log-linear, rounded to tokens."""
    left = np.searchsorted(levels, uniform, side="right") - 1
    part = (uniform - levels[left]) / (levels[left + 1] - levels[left])
    rows = np.arange(len(points))
    low, high = np.log(points[rows, left]), np.log(points[rows, left + 1])
    tokens: IntArray = np.rint(np.exp(low + part * (high - low))).astype(np.int64)
    return tokens


def fit(
    trace: Trace | Requests, windows: int = 1, prompt_classes: int = 4,
    quantiles: Sequence[float] = QUANTILES, source: str | None = None, made_by: str | None = None,
) -> LengthTable:  # fmt: skip
    """The length table of a trace.

    Windows are equal spans of time, or of requests where the trace has no times. Prompt classes are
    cut at the window's prompt quantiles, equal prompts staying together, so they can be fewer than
    asked for. Raises ValueError where a class would have fewer than LEAST_REQUESTS requests.
    """
    where, span_s = _windows(trace, windows)
    return LengthTable(
        source=source,
        made_by=made_by,
        requests=len(trace),
        quantiles=[float(level) for level in quantiles],
        windows=[
            TraceWindow(
                share=_rounded(np.mean(where == k)),
                span_s=span_s,
                classes=_classes(trace, where == k, k, prompt_classes, quantiles),
            )
            for k in range(windows)
        ],
    )


def _windows(trace: Trace | Requests, windows: int) -> tuple[IntArray, float | None]:
    """The window of each request, int64 (n,), and the span of a window in seconds."""
    if windows < 1:
        raise ValueError(f"expected at least 1 window; got {windows}")
    count = len(trace)
    if trace.arrival_s is None:
        return np.arange(count) * windows // count, None
    start, end = trace.arrival_s[0], trace.arrival_s[-1]
    if end == start and windows == 1:
        return np.zeros(count, np.int64), None
    if end == start:
        raise ValueError("all requests arrive at the same time; there are no windows to cut")
    where = ((trace.arrival_s - start) / (end - start) * windows).astype(np.int64)
    return np.minimum(where, windows - 1), _rounded((end - start) / windows, digits=6)


def _classes(
    trace: Trace | Requests,
    rows: NDArray[np.bool_],
    k: int,
    classes: int,
    quantiles: Sequence[float],
) -> list[PromptClass]:
    if classes < 1:
        raise ValueError(f"expected at least 1 prompt class; got {classes}")
    prompts, outputs = trace.prompt_tokens[rows], trace.output_tokens[rows]
    if len(prompts) < LEAST_REQUESTS:
        raise ValueError(f"window {k} has only {len(prompts)} requests; use fewer windows")
    cuts = np.unique(np.quantile(prompts, np.arange(1, classes) / classes))
    belongs = np.searchsorted(cuts, prompts, side="left")
    result = []
    for j in np.unique(belongs):
        here = belongs == j
        if here.sum() < LEAST_REQUESTS:
            few = f"class {j} of window {k} has only {here.sum()} requests"
            raise ValueError(f"{few}; use fewer windows or classes")
        points = [np.rint(np.quantile(x[here], quantiles)).astype(int) for x in (prompts, outputs)]
        p, o = (column.tolist() for column in points)
        share = _rounded(here.mean())
        result.append(PromptClass(share=share, prompt_tokens=p, output_tokens=o))
    return result


def _rounded(number: np.floating, digits: int = 4) -> float:
    return float(f"{number:.{digits}g}")


def to_yaml(table: LengthTable) -> str:
    """The table as YAML, a line for the prompts and one for the outputs of each class."""
    head = {"source": table.source, "made_by": table.made_by, "requests": table.requests}
    lines = ["table:"]
    for key, value in head.items():
        if value is not None:
            text = yaml.safe_dump({key: value}, width=96, allow_unicode=True)
            lines += ["  " + line for line in text.splitlines()]
    lines += [f"  quantiles: {_flow(table.quantiles)}", "  windows:"]
    for window in table.windows:
        span = "" if window.span_s is None else f"    span_s: {_plain(window.span_s)}"
        lines += [f"  - share: {_plain(window.share)}", *([span] if span else []), "    classes:"]
        for part in window.classes:
            lines += [
                f"    - {{share: {_plain(part.share)}, prompt_tokens: {_flow(part.prompt_tokens)},",
                f"       output_tokens: {_flow(part.output_tokens)}}}",
            ]
    return "\n".join(lines) + "\n"


def _flow(numbers: Sequence[float]) -> str:
    return "[" + ", ".join(map(_plain, numbers)) + "]"


def _plain(number: float) -> str:
    """The shortest exact decimal without an exponent, which strict YAML refuses."""
    return np.format_float_positional(number, trim="-")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the length table of a trace. Returns 2 and says why when the input is at fault."""
    parser = argparse.ArgumentParser(
        prog="python -m policies.requests.length_table", description=fit.__doc__
    )
    parser.add_argument("trace", type=Path, help="see policies.requests.trace_formats")
    parser.add_argument("--windows", type=int, default=1)
    parser.add_argument("--prompt-classes", type=int, default=4)
    parser.add_argument("--quantiles", type=float, nargs="+", default=QUANTILES)
    parser.add_argument("--source", help="public repository, commit and licence")
    given = parser.parse_args(arguments)
    command = [
        f"python -m policies.requests.length_table {given.trace.name}",
        f"--windows {given.windows} --prompt-classes {given.prompt_classes}",
    ]
    if tuple(given.quantiles) != QUANTILES:
        command.append("--quantiles " + " ".join(f"{level:g}" for level in given.quantiles))
    try:
        table = fit(
            load_trace(given.trace), given.windows, given.prompt_classes, given.quantiles,
            source=given.source, made_by=" ".join(command),
        )  # fmt: skip
    except (DescriptionError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    sys.stdout.write(to_yaml(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Logs of a real server: when each request came, and when it had its first and its last token.

JSON lines, plain or gzip, with the names of vLLM's per-request statistics, as the bench of
LLMServingSim writes them: `input_toks`, `output_toks`, `queued_ts`, `first_token_ts`,
`last_token_ts`, in seconds of one clock. Other keys are not read.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.requests.percentiles import summary
from policies.requests.requests import MAX_TOKENS, FloatArray, IntArray, Requests
from policies.requests.trace_formats import read_text

_TOKENS = ("input_toks", "output_toks")
_TIMES = ("queued_ts", "first_token_ts", "last_token_ts")


class RequestTimes(NamedTuple):
    """Requests in the order in which they queued. Times: float64 (n,), seconds since the first;
    tokens: int64 (n,)."""

    queued_s: FloatArray
    first_s: FloatArray
    last_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray

    @property
    def requests(self) -> Requests:
        """The stream that the server had."""
        return Requests(self.queued_s, self.prompt_tokens, self.output_tokens)

    def figures(self) -> dict[str, Any]:
        """Summaries of what requests waited, as `Metrics.figures` has them."""
        several = self.output_tokens > 1
        each = (self.last_s - self.first_s)[several] / (self.output_tokens[several] - 1)
        return {
            "ttft_s": summary(self.first_s - self.queued_s),
            "tpot_s": summary(each),
            "latency_s": summary(self.last_s - self.queued_s),
            "makespan_output_tokens_per_s": float(self.output_tokens.sum() / self.last_s.max()),
        }


def read_request_log(path: Path) -> RequestTimes:
    """Read a log. Raises DescriptionError with file and line for whatever is wrong with it."""
    rows = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            try:
                rows.append(_row(line))
            except ValueError as error:
                raise DescriptionError(str(error), path, number) from None
    if not rows:
        raise DescriptionError("no requests", path)
    rows.sort(key=lambda row: row[2])
    prompts, outputs, queued, first, last = np.array(rows).T
    start = queued[0]
    return RequestTimes(
        queued - start,
        first - start,
        last - start,
        prompts.astype(np.int64),
        outputs.astype(np.int64),
    )


def _row(line: str) -> tuple[float, ...]:
    """Tokens, then times. Raises ValueError."""
    try:
        item = json.loads(line)
    except (ValueError, RecursionError):
        item = None
    if not isinstance(item, dict):
        raise ValueError(f"expected a JSON object with {', '.join(_TOKENS + _TIMES)} on each line")
    for key in _TOKENS + _TIMES:
        if key not in item:
            raise ValueError(f"key {key!r} is missing")
    for key in _TOKENS:
        if type(item[key]) is not int or not 1 <= item[key] <= MAX_TOKENS:
            raise ValueError(f"{key}: expected a number of tokens, 1 or more; got {item[key]!r}")
    before = 0.0
    for key in _TIMES:
        now = item[key]
        if type(now) not in (int, float) or not before <= now < math.inf:
            raise ValueError(f"{key}: expected seconds, not before {before:g}; got {now!r}")
        before = now
    return tuple(float(item[key]) for key in _TOKENS + _TIMES)

"""Requests that servers and their benchmarks have logged, with when each had its tokens.

- JSON lines with the names of vLLM's per-request statistics, as the bench of LLMServingSim writes
  them: `input_toks`, `output_toks`, `queued_ts`, `first_token_ts`, `last_token_ts`, in seconds of
  one clock;
- what `vllm bench serve --save-result --save-detailed` and `sglang.bench_serving --output-file
  --output-details` write: an object with a list an entry a request (vLLM `benchmarks/serve.py`,
  SGLang `bench_serving.py`). Read are `input_lens`, `output_lens`, `ttfts` and `itls` (seconds) and
  `start_times`; without these, requests of an infinite rate and no limit on how many run come at
  once. Requests without an answer failed and are left out.

Other keys are not read.
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

_TOKENS = ("input_toks", "output_toks")
_TIMES = ("queued_ts", "first_token_ts", "last_token_ts")
_LISTS = ("input_lens", "output_lens", "ttfts", "itls")
_MARKS = ('"input_toks"', '"input_lens"')


class Timed(NamedTuple):
    """A request: tokens, then seconds of one clock."""

    prompt: float
    output: float
    queued: float
    first: float
    last: float


class LoggedRequests:
    """A log. `line`: the one that is being read."""

    def __init__(self, text: str, max_tokens: int) -> None:
        self._text, self._most = text, max_tokens
        self.line = 1

    @staticmethod
    def known(text: str) -> bool:
        """Whether the text is such a log."""
        return any(mark in text for mark in _MARKS)

    def read(self) -> list[Timed]:
        """The requests as they queued. Raises ValueError about the line being read."""
        if _MARKS[1] in self._text:
            found = self._bench()
        else:
            found = []
            for number, line in enumerate(self._text.split("\n"), 1):
                self.line = number
                if line.strip():
                    found.append(self._row(line))
        if not found:
            raise ValueError("no requests")
        return sorted(found, key=lambda each: each.queued)

    def _row(self, line: str) -> Timed:
        item = json_object(line)
        if item is None:
            raise ValueError(
                f"expected a JSON object with {', '.join(_TOKENS + _TIMES)} on each line"
            )
        for key in _TOKENS + _TIMES:
            if key not in item:
                raise ValueError(f"key {key!r} is missing")
        for key in _TOKENS:
            self._tokens(key, item[key])
        before = 0.0
        for key in _TIMES:
            now = item[key]
            if type(now) not in (int, float) or not before <= now < math.inf:
                raise ValueError(f"{key}: expected seconds, not before {before:g}; got {now!r}")
            before = now
        return Timed(*(float(item[key]) for key in _TOKENS + _TIMES))

    def _tokens(self, key: str, value: Any) -> None:
        if type(value) is not int or not 1 <= value <= self._most:
            raise ValueError(f"{key}: expected a number of tokens, 1 or more; got {value!r}")

    def _bench(self) -> list[Timed]:
        last = self._text.rstrip().rsplit("\n", 1)[-1]  # SGLang appends a line a run
        data = json_object(self._text) or json_object(last)
        if data is None:
            raise ValueError("expected the JSON object of a benchmark")
        for key in _LISTS:
            if not isinstance(data.get(key), list):
                how = "--save-detailed (vLLM) or --output-details (SGLang) writes it"
                raise ValueError(f"list {key!r} is missing: {how}")
        count, starts = len(data["input_lens"]), data.get("start_times")
        free = str(data.get("request_rate")) == "inf" and not data.get("max_concurrency")
        if starts is None and free:
            starts = [0.0] * count
        if not isinstance(starts, list):
            raise ValueError("start_times is missing, and nothing else says when requests came")
        columns = [*(data[key] for key in _LISTS), starts]
        if any(len(column) != count for column in columns):
            raise ValueError(f"expected {count} each of {', '.join(_LISTS)} and start_times")
        rows = enumerate(zip(*columns, strict=True))
        return [self._timed(i, *row) for i, row in rows if row[1]]

    def _timed(self, i: int, prompt: Any, output: Any, ttft: Any, gaps: Any, start: Any) -> Timed:
        self._tokens(f"input_lens[{i}]", prompt)
        self._tokens(f"output_lens[{i}]", output)
        gaps = gaps if isinstance(gaps, list) else [gaps]
        for key, values in (("ttfts", [ttft]), ("itls", gaps), ("start_times", [start])):
            for value in values:
                if type(value) not in (int, float) or not 0 <= value < math.inf:
                    raise ValueError(f"{key}[{i}]: expected seconds, 0 or more; got {value!r}")
        first = start + ttft
        return Timed(prompt, output, start, first, first + math.fsum(gaps))


def json_object(text: str) -> dict[str, Any] | None:
    """The object that a text is; None where it is none."""
    try:
        item = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return item if isinstance(item, dict) else None

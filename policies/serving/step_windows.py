"""Stretches of steps of a measured server: how long they took, and what was in them.

From a log of requests: one stretch a request, from its first token to its last, with what the other
requests did meanwhile. From counters over time: one stretch from each line to the next. They are

- what vLLM logs every ten seconds (`Avg prompt throughput: ...`, `LoggingStatLogger`);
- what SGLang logs every forty decode steps (`Decode batch, ...`) and for prefills;
- the text that vLLM and SGLang expose to Prometheus, scraped now and then, each after a line
  `# scraped_at SECONDS` (`examples/capture/scrape.py` writes them);
- CSV with columns t, prompt_throughput, gen_throughput, running, waiting, kv_cache_pct.

Steps of a stretch are the tokens of one request, or all tokens over the requests that run.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.requests.request_log import LoggedTimes

LEAST = 16
"""Decode steps of a stretch at least (assumed): fewer say little."""
SGLANG_EVERY = 40
"""Decode steps from line to line (`--decode-log-interval`)."""
_VLLM = re.compile(
    r"Avg prompt throughput: ([\d.]+) tokens/s, Avg generation throughput: ([\d.]+) tokens/s,"
    r" Running: (\d+) reqs, Waiting: (\d+) reqs.*?KV cache usage: ([\d.]+)%"
)
_SGLANG = re.compile(
    r"Decode batch.*?#running-req: (\d+), #(?:full )?token: (\d+),.*?gen throughput \(token/s\):"
    r" ([\d.]+)"
)
_PREFILL = re.compile(r"Prefill batch.*?#new-token: (\d+)")
_SCRAPED = re.compile(r"^# scraped_at ([\d.]+)\s*$", re.MULTILINE)
_SAMPLE = re.compile(r"^(?:vllm|sglang):(\w+)(?:\{[^}]*\})? ([-+\d.eE]+)\s*$", re.MULTILINE)
_NAMES = {
    "prompt": ("prompt_tokens_total",), "output": ("generation_tokens_total",),
    "running": ("num_requests_running", "num_running_reqs"),
    "used": ("kv_cache_usage_perc", "gpu_cache_usage_perc", "token_usage"),
}  # fmt: skip
_COLUMNS = ("prompt_throughput", "gen_throughput", "running", "kv_cache_pct")


class StepWindow(NamedTuple):
    """A stretch. batch, context: the mean of its steps, requests and tokens that are stored."""

    end_s: float
    """When it ended, of the server's clock."""
    seconds: float
    steps: float
    batch: float
    context: float
    prompt_tokens: float
    """That were computed in it."""


def of_requests(times: LoggedTimes) -> list[StepWindow]:
    """A stretch a request. What others had stored in the middle of what they share with it counts
    as stored throughout; their prompts count where their first tokens came."""
    found = []
    steps = times.output_tokens - 1
    spans = np.maximum(times.last_s - times.first_s, 1e-9)
    for i in np.flatnonzero(steps >= LEAST):
        first, last, span = times.first_s[i], times.last_s[i], spans[i]
        start, end = np.maximum(times.first_s, first), np.minimum(times.last_s, last)
        shared = np.clip(end - start, 0.0, None) / span
        grown = ((start + end) / 2 - times.first_s) / spans * steps
        stored = times.prompt_tokens + np.clip(grown, 0, steps)
        inside = (times.first_s > first) & (times.first_s <= last)
        prompts = float(times.prompt_tokens[inside].sum())
        batch, context = float(shared.sum()), float((shared * stored).sum())
        found.append(StepWindow(float(last), float(span), float(steps[i]), batch, context, prompts))
    return found


class _Line(NamedTuple):
    """Counters at a moment. Rates: of the time since the line before."""

    time_s: float
    prompt_per_s: float
    output_per_s: float
    running: float
    used: float


def read_counters(text: str, path: Path, kv_tokens: int) -> list[StepWindow]:
    """The stretches of a log of counters. kv_tokens: slots of the KV cache, which its use is a
    share of. Raises DescriptionError where none of the formats is there."""
    if _SGLANG.search(text):
        return list(_of_sglang(text))
    if _SCRAPED.search(text):
        lines = list(_scraped(text, path))
    elif _VLLM.search(text):
        lines = [
            _Line(10.0 * i, float(prompt), float(output), float(running), float(used) / 100)
            for i, (prompt, output, running, _, used) in enumerate(_VLLM.findall(text))
        ]
    else:
        lines = list(_columns(text, path))
    found = []
    for before, now in pairwise(lines):
        running, seconds = (before.running + now.running) / 2, now.time_s - before.time_s
        if min(before.running, now.running, now.output_per_s, seconds) <= 0:
            continue
        steps = now.output_per_s * seconds / running
        context = (before.used + now.used) / 2 * kv_tokens
        if steps >= LEAST:
            found.append(StepWindow(now.time_s, seconds, steps, running, context,
                                now.prompt_per_s * seconds))  # fmt: skip
    if not found:
        raise DescriptionError(f"no stretch of {LEAST} steps or more", path)
    return found


def _of_sglang(text: str) -> Iterator[StepWindow]:
    """Lines have whole seconds; the rate of tokens says more of how long forty steps took."""
    now, prompts = 0.0, 0.0
    for line in text.splitlines():
        if (found := _PREFILL.search(line)) is not None:
            prompts += float(found[1])
        elif (found := _SGLANG.search(line)) is not None:
            running, tokens, rate = map(float, found.groups())
            if running and rate:
                seconds = SGLANG_EVERY * running / rate
                now += seconds
                yield StepWindow(now, seconds, SGLANG_EVERY, running, tokens, prompts)
            prompts = 0.0


def _scraped(text: str, path: Path) -> Iterator[_Line]:
    parts = _SCRAPED.split(text)
    before: tuple[float, dict[str, float]] | None = None
    for when, body in zip(parts[1::2], parts[2::2], strict=True):
        samples: dict[str, float] = {}
        for name, value in _SAMPLE.findall(body):  # of several engines the sum
            samples[name] = samples.get(name, 0.0) + float(value)
        values = {}
        for key, names in _NAMES.items():
            known = [name for name in names if name in samples]
            if not known:
                raise DescriptionError(f"no {' or '.join(names)} in the scrape at {when}", path)
            values[key] = samples[known[0]]
        now = float(when)
        if before is not None and now > before[0]:
            seconds, last = now - before[0], before[1]
            prompt, output = ((values[k] - last[k]) / seconds for k in ("prompt", "output"))
            yield _Line(now, prompt, output, values["running"], values["used"])
        before = now, values


def _columns(text: str, path: Path) -> Iterator[_Line]:
    reader = csv.DictReader(io.StringIO(text))
    for row in reader:
        try:
            prompt, output, running, used = (float(row[name]) for name in _COLUMNS)
            line = _Line(float(row["t"]), prompt, output, running, used / 100)
        except (KeyError, TypeError, ValueError):
            line = None
        if line is None or not all(map(math.isfinite, line)):
            raise DescriptionError(
                "expected a request log, the output of a benchmark, a server's log, scrapes for"
                f" Prometheus, or CSV with numbers in t, {', '.join(_COLUMNS)}",
                path, max(reader.line_num, 1),
            )  # fmt: skip
        yield line

"""Records of a serving run as it goes: a row of CSV for each request and for each stretch of steps.

The serving loop calls `Watch`, which passes events to a `Recorder`. A recorder writes as they come
and keeps only the state of requests that have not ended.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from policies.allocators.capabilities import Classifies
from policies.memory.step import PHASES

if TYPE_CHECKING:
    from policies.allocators.allocator import Allocator
    from policies.allocators.capabilities import Migration
    from policies.engines.engine import Engine
    from policies.engines.scheduled_step import Step
    from policies.memory.step import StepTimes
    from policies.requests.requests import Requests


class Recorder:
    """Receives the events of a run. Times in seconds since its start; requests by their index."""

    def serving(self, requests: Requests) -> None:
        """These are served instead of those it was made for: each sample a request of its own."""

    def step(
        self, now_s: float, seconds: float, step: Step, times: StepTimes, allocator: Allocator
    ) -> None:
        """Equal steps began at `now_s` and took `seconds` together, `len(times.total_s)` of them;
        `allocator` as it is at their end."""

    def sent(self, at_s: float, request: int) -> None:
        """A client of a closed loop sends it then."""

    def admitted(self, now_s: float, request: int, slots: int) -> None:
        """It runs from now on, with `slots` reserved."""

    def first_token(self, now_s: float, request: int) -> None:
        """It has its first output token."""

    def resumed(self, now_s: float, request: int) -> None:
        """After a preemption it decodes again; its KV is recomputed or swapped in."""

    def ended(self, now_s: float, request: int) -> None:
        """It has its last output token."""

    def preempted(self, now_s: float, request: int, how: str) -> None:
        """It runs no more until it is admitted again. `how`: recompute or swap."""

    def migrated(self, now_s: float, migration: Migration) -> None:
        """Its tokens are copied to another place in the step that begins now."""

    def refreshed(self, now_s: float, bounds: Sequence[int]) -> None:
        """Bucket bounds are these from now on, in tokens."""

    def close(self) -> None:
        """The run is over, or has failed."""


class Recorders(Recorder):
    """Several at once: each event goes to every member."""

    def __init__(self, members: Iterable[Recorder]) -> None:
        self._members = tuple(members)


def _to_all(event: str) -> Callable[..., None]:
    def told(self: Recorders, *what: Any) -> None:
        for member in self._members:
            getattr(member, event)(*what)

    return told


for _event in [name for name in vars(Recorder) if not name.startswith("_")]:
    setattr(Recorders, _event, _to_all(_event))


class Watch:
    """Derives events from the running requests before and after a step."""

    def __init__(self, recorder: Recorder, engine: Engine) -> None:
        self._recorder = recorder
        self._engine = engine
        self._running: set[int] = set()
        self._begun: set[int] = set()
        """Requests under way that have a first token."""
        self._swapped: set[int] = set()
        self._bounds = _bounds(engine.allocator)

    def scheduled(self, now_s: float, step: Step) -> None:
        """The step that begins at `now_s` has its requests and their memory."""
        engine, recorder = self._engine, self._recorder
        bounds = _bounds(engine.allocator)
        if bounds != self._bounds:
            self._bounds = bounds
            recorder.refreshed(now_s, bounds)
        before, self._running = self._running, set(engine.running.tolist())
        self._running.difference_update(engine.ending)
        swapped = (before - self._running).intersection(getattr(engine, "swapped", ()))
        for request in sorted(before - self._running):
            recorder.preempted(now_s, request, "swap" if request in swapped else "recompute")
        self._swapped |= swapped
        for migration in step.migrations:
            recorder.migrated(now_s, migration)
        for request in sorted(self._running - before):
            recorder.admitted(now_s, request, int(engine.allocator.reserved[request]))
            if request in self._swapped:
                self._swapped.remove(request)
                recorder.resumed(now_s, request)

    def stepped(self, now_s: float, step: Step, times: StepTimes) -> None:
        """It, and those like it, began at `now_s` and are over."""
        seconds = float(times.total_s.sum())
        self._recorder.step(now_s, seconds, step, times, self._engine.allocator)

    def completed(self, now_s: float, prefilled: Iterable[int], ended: Iterable[int]) -> None:
        """At the end of a step a prefill of these is done, and those have their last token."""
        for request in prefilled:
            if request in self._begun:
                self._recorder.resumed(now_s, request)
            else:
                self._begun.add(request)
                self._recorder.first_token(now_s, request)
        for request in ended:
            self._recorder.ended(now_s, request)
        self._begun.difference_update(ended)
        self._running.difference_update(ended)


def _bounds(allocator: Allocator) -> tuple[int, ...]:
    """The bounds of an allocator with classes, else none."""
    return allocator.bounds if isinstance(allocator, Classifies) else ()


class Rows:
    """A CSV file that is written row by row."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._writer.writerow(columns)

    def add(self, row: Iterable[Any]) -> None:
        self._writer.writerow(row)

    def close(self) -> None:
        self._file.close()


@dataclass
class _Life:
    """State of a request that has not ended."""

    admitted_s: float
    first_s: float = float("nan")
    admissions: int = 0
    recomputed: int = 0
    swapped: int = 0
    migrations: int = 0
    migrated_tokens: int = 0
    reserved: int = 0


class RequestLog(Recorder):
    """A row for each request as it ends; `reserved` are the slots of its last admission."""

    COLUMNS = (
        "request", "arrival_s", "admitted_s", "first_token_s", "end_s", "prompt_tokens",
        "output_tokens", "prefix_id", "prefix_tokens", "samples", "admissions", "recomputed",
        "swapped", "migrations", "migrated_tokens", "reserved",
    )  # fmt: skip

    def __init__(self, path: Path, requests: Requests) -> None:
        self._rows = Rows(path, self.COLUMNS)
        self._requests = requests
        self._lives: dict[int, _Life] = {}
        self._sent_s: dict[int, float] = {}

    def sent(self, at_s: float, request: int) -> None:
        self._sent_s[request] = at_s

    def serving(self, requests: Requests) -> None:
        self._requests = requests

    def admitted(self, now_s: float, request: int, slots: int) -> None:
        life = self._lives.setdefault(request, _Life(now_s))
        life.admissions += 1
        life.reserved = slots

    def first_token(self, now_s: float, request: int) -> None:
        self._lives[request].first_s = now_s

    def preempted(self, now_s: float, request: int, how: str) -> None:
        life = self._lives[request]
        life.swapped += how == "swap"
        life.recomputed += how == "recompute"

    def migrated(self, now_s: float, migration: Migration) -> None:
        life = self._lives[migration.request]
        life.migrations += 1
        life.migrated_tokens += migration.tokens

    def ended(self, now_s: float, request: int) -> None:
        life, stream = self._lives.pop(request), self._requests
        arrival_s = self._sent_s.pop(request, float(stream.arrival_s[request]))
        columns = (
            stream.prompt_tokens,
            stream.output_tokens,
            stream.prefix_id,
            stream.prefix_tokens,
            stream.samples,
        )
        self._rows.add(
            [
                request, arrival_s, life.admitted_s, life.first_s, now_s,
                *(int(column[request]) for column in columns), life.admissions, life.recomputed,
                life.swapped, life.migrations, life.migrated_tokens, life.reserved,
            ]
        )  # fmt: skip

    def close(self) -> None:
        self._rows.close()


class StepLog(Recorder):
    """A row for each stretch of equal steps: seconds of its phases, slots as they end it."""

    COLUMNS = (
        "start_s", "seconds", "steps", "decode", "context_tokens", "chunks", "prefill_tokens",
        "cached_tokens", "preempted", "migrations", "migrated_tokens", "copied_tokens",
        "swapped_tokens", "limit", "reserved_slots", "free_slots",
        *(f"{phase}_s" for phase in (*PHASES, "overhead")),
    )  # fmt: skip

    def __init__(self, path: Path) -> None:
        self._rows = Rows(path, self.COLUMNS)

    def step(
        self, now_s: float, seconds: float, step: Step, times: StepTimes, allocator: Allocator
    ) -> None:
        rounds = len(times.total_s)
        self._rows.add(
            [
                now_s, seconds, rounds, len(step.decode), step.context, len(step.chunks),
                sum(chunk.tokens for chunk in step.chunks), step.cached, step.preempted,
                len(step.migrations), sum(migration.tokens for migration in step.migrations),
                step.copied, step.swapped, step.limit,
                allocator.reserved_total, allocator.free_slots,
                *(phase_seconds(times, name) for name in (*PHASES, "overhead")),
            ]
        )  # fmt: skip

    def close(self) -> None:
        self._rows.close()


def phase_seconds(times: StepTimes, phase: str) -> float:
    """Seconds of a phase in all the steps."""
    each = getattr(times, f"{phase}_s")
    return float(np.broadcast_to(each, len(times.total_s)).sum())

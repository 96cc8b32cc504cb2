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
from policies.memory.step_times import PHASES

if TYPE_CHECKING:
    from policies.allocators.allocator import Allocator
    from policies.allocators.capabilities import Migration
    from policies.engines.engine import Engine
    from policies.engines.scheduled_step import Step
    from policies.memory.step_times import StepTimes
    from policies.requests.requests import Requests


class Recorder:
    """Receives the events of a run. Times in seconds since its start; requests by their index, and
    replicas by that of their (first) card: of pools those that prefill come first. Events of a
    replica come in order; those of others may lie before them."""

    def serving(self, requests: Requests) -> None:
        """These are served in the place of those it was made for: a request for each sample."""

    def step(
        self, now_s: float, seconds: float, step: Step, times: StepTimes, allocator: Allocator,
        replica: int,
    ) -> None:  # fmt: skip
        """Equal steps began at `now_s` and took `seconds` together, `len(times.total_s)` of them;
        `allocator` as it is at their end."""

    def sent(self, at_s: float, request: int) -> None:
        """A client of a closed loop sends it then."""

    def admitted(self, now_s: float, request: int, slots: int, replica: int) -> None:
        """It runs there from now on, with `slots` reserved."""

    def first_token(self, now_s: float, request: int, replica: int) -> None:
        """It has its first output token."""

    def resumed(self, now_s: float, request: int, replica: int) -> None:
        """After a preemption, or on another replica, it decodes again; its KV is computed again,
        swapped in or has come."""

    def ended(self, now_s: float, request: int, replica: int) -> None:
        """It has its last output token."""

    def preempted(self, now_s: float, request: int, how: str, replica: int) -> None:
        """It runs no more until it is admitted again. `how`: recompute, also where its replica has
        failed, or swap."""

    def moved(self, now_s: float, request: int, replica: int) -> None:
        """It runs there no more, and goes on elsewhere with its KV."""

    def migrated(self, now_s: float, migration: Migration, replica: int) -> None:
        """Its tokens are copied to another place in the step that begins now."""

    def refreshed(self, now_s: float, bounds: Sequence[int], replica: int) -> None:
        """Bucket bounds are these from now on, in tokens."""

    def close(self) -> None:
        """The run is over, or has failed."""


class Recorders(Recorder):
    """Several at once: each event goes to every member."""

    def __init__(self, members: Iterable[Recorder]) -> None:
        self._members = tuple(members)


def _to_all(event: str) -> Callable[..., None]:
    def forward(self: Recorders, *what: Any) -> None:
        for member in self._members:
            getattr(member, event)(*what)

    return forward


for _event in [name for name in vars(Recorder) if not name.startswith("_")]:
    setattr(Recorders, _event, _to_all(_event))


class Watch:
    """Derives events of a replica from its running requests before and after a step. `run`: those
    that watch the replicas of a run, by the running requests of each. `number`: of the replica."""

    def __init__(self, run: Watches, engine: Engine) -> None:
        self._run, self._recorder, self._engine = run, run.recorder, engine
        self.number = 0
        self._running: set[int] = set()
        self._bounds = _bounds(engine.allocator)

    def scheduled(self, now_s: float, step: Step) -> None:
        """The step that begins at `now_s` has its requests and their memory."""
        engine, recorder = self._engine, self._recorder
        bounds = _bounds(engine.allocator)
        if bounds != self._bounds:
            self._bounds = bounds
            recorder.refreshed(now_s, bounds, self.number)
        running = set(engine.running.tolist())
        running.difference_update(engine.ending)
        for request in sorted(self._running - running):
            if (how := engine.waits_for(request)) is not None:
                recorder.preempted(now_s, request, how, self.number)
                self._forget(request)
            else:
                self._gone(now_s, request)
        for migration in step.migrations:
            recorder.migrated(now_s, migration, self.number)
        if new := sorted(running - self._running):
            decode = set(step.decode.tolist())
        for request in new:
            if (other := self._run.of.get(request)) is not None:
                other._gone(now_s, request)
            self._run.of[request] = self
            recorder.admitted(
                now_s, request, int(engine.allocator.reserved[request]), self.number
            )  # fmt: skip
            if request in decode:
                recorder.resumed(now_s, request, self.number)
        self._running = running

    def stepped(self, now_s: float, step: Step, times: StepTimes) -> None:
        """It, and those like it, began at `now_s` and are over."""
        seconds = float(times.total_s.sum())
        self._recorder.step(
            now_s, seconds, step, times, self._engine.allocator, self.number
        )  # fmt: skip

    def completed(
        self, now_s: float, prefilled: Iterable[int], first: Iterable[int], ended: Iterable[int]
    ) -> None:
        """At the end of a step a prefill of these is done, `first` for the first time, and those
        have their last token."""
        for request in prefilled:
            told = self._recorder.first_token if request in first else self._recorder.resumed
            told(now_s, request, self.number)
        for request in ended:
            self._recorder.ended(now_s, request, self.number)
            self._forget(request)

    def left(self, at_s: float, again: Iterable[int]) -> None:
        """All requests of the replica go on elsewhere, these from their beginning."""
        for request in sorted(self._running.intersection(again)):
            self._recorder.preempted(at_s, request, "recompute", self.number)
            self._forget(request)
        for request in sorted(self._running):
            self._gone(at_s, request)

    def _gone(self, now_s: float, request: int) -> None:
        self._recorder.moved(now_s, request, self.number)
        self._forget(request)

    def _forget(self, request: int) -> None:
        self._running.discard(request)
        self._run.of.pop(request, None)


class Watches:
    """What tells the recorder of a run what its replicas do."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.of: dict[int, Watch] = {}
        """Of the replica where each request runs."""

    def watch(self, engine: Engine) -> Watch:
        """What a replica with this engine tells."""
        return Watch(self, engine)


def _bounds(allocator: Allocator) -> tuple[int, ...]:
    """The bounds of an allocator with classes, else none."""
    return () if (able := allocator.able(Classifies)) is None else able.bounds


class CsvRows:
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
    moved: int = 0
    reserved: int = 0


class RequestLog(Recorder):
    """A row for each request as it ends; `reserved` are the slots of its last admission, `replica`
    where it ended, `moved` how often it went on elsewhere with its KV."""

    COLUMNS = (
        "request", "arrival_s", "admitted_s", "first_token_s", "end_s", "prompt_tokens",
        "output_tokens", "prefix_id", "prefix_tokens", "parent", "admissions", "recomputed",
        "swapped", "migrations", "migrated_tokens", "reserved", "moved", "replica",
    )  # fmt: skip

    def __init__(self, path: Path, requests: Requests) -> None:
        self._rows = CsvRows(path, self.COLUMNS)
        self._requests = requests
        self._lives: dict[int, _Life] = {}
        self._sent_s: dict[int, float] = {}

    def sent(self, at_s: float, request: int) -> None:
        self._sent_s[request] = at_s

    def serving(self, requests: Requests) -> None:
        self._requests = requests

    def admitted(self, now_s: float, request: int, slots: int, replica: int) -> None:
        life = self._lives.setdefault(request, _Life(now_s))
        life.admissions += 1
        life.reserved = slots

    def first_token(self, now_s: float, request: int, replica: int) -> None:
        self._lives[request].first_s = now_s

    def preempted(self, now_s: float, request: int, how: str, replica: int) -> None:
        life = self._lives[request]
        life.swapped += how == "swap"
        life.recomputed += how == "recompute"

    def migrated(self, now_s: float, migration: Migration, replica: int) -> None:
        life = self._lives[migration.request]
        life.migrations += 1
        life.migrated_tokens += migration.tokens

    def moved(self, now_s: float, request: int, replica: int) -> None:
        self._lives[request].moved += 1

    def ended(self, now_s: float, request: int, replica: int) -> None:
        life, stream = self._lives.pop(request), self._requests
        arrival_s = self._sent_s.pop(request, float(stream.arrival_s[request]))
        columns = (
            stream.prompt_tokens,
            stream.output_tokens,
            stream.prefix_id,
            stream.prefix_tokens,
            stream.parent,
        )
        self._rows.add(
            [
                request, arrival_s, life.admitted_s, life.first_s, now_s,
                *(int(column[request]) for column in columns), life.admissions, life.recomputed,
                life.swapped, life.migrations, life.migrated_tokens, life.reserved, life.moved,
                replica,
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
        *(f"{phase}_s" for phase in (*PHASES, "overhead")), "replica",
    )  # fmt: skip

    def __init__(self, path: Path) -> None:
        self._rows = CsvRows(path, self.COLUMNS)

    def step(
        self, now_s: float, seconds: float, step: Step, times: StepTimes, allocator: Allocator,
        replica: int,
    ) -> None:  # fmt: skip
        rounds = len(times.total_s)
        self._rows.add(
            [
                now_s, seconds, rounds, len(step.decode), step.context, len(step.chunks),
                sum(chunk.tokens for chunk in step.chunks), step.cached, step.preempted,
                len(step.migrations), sum(migration.tokens for migration in step.migrations),
                step.copied, step.swapped, step.limit,
                allocator.reserved_total, allocator.free_slots,
                *(phase_seconds(times, name) for name in (*PHASES, "overhead")), replica,
            ]
        )  # fmt: skip

    def close(self) -> None:
        self._rows.close()


def phase_seconds(times: StepTimes, phase: str) -> float:
    """Seconds of a phase in all the steps."""
    each = getattr(times, f"{phase}_s")
    return float(np.broadcast_to(each, len(times.total_s)).sum())

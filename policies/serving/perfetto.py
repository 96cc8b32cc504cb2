"""A serving run as a trace for ui.perfetto.dev or chrome://tracing: JSON trace events, gzip.

Format: "Trace Event Format" (Chromium project). Steps are complete events (X); what a request does
(waiting, prefill, decode) are async slices (b, e) of its own; preemptions, migrations and bucket
refreshes are instants (i); batch and reserved slots are counters (C). Times in microseconds.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policies.memory.step_times import PHASES
from policies.serving.recorder import Recorder, phase_seconds

if TYPE_CHECKING:
    from policies.allocators.allocator import Allocator
    from policies.allocators.capabilities import Migration
    from policies.engines.scheduled_step import Step
    from policies.memory.step_times import StepTimes
    from policies.requests.requests import Requests

_STEPS, _REQUESTS = 1, 2
"""Process ids: one shows the first replica, the other the requests; behind it, the other
replicas."""
_NAMES = {_STEPS: "steps", _REQUESTS: "requests"}


class PerfettoTrace(Recorder):
    """Writes events as they happen; closed whole even when the run fails."""

    def __init__(self, path: Path, requests: Requests) -> None:
        self._requests = requests
        self._sent_s: dict[int, float] = {}
        self._doing: dict[int, str] = {}
        self._named: set[int] = set()
        self._file = io.TextIOWrapper(
            gzip.GzipFile(path, "wb", compresslevel=5, mtime=0), encoding="utf-8"
        )
        self._file.write('{"displayTimeUnit":"ms","traceEvents":[')
        self._separator = "\n"
        for process, name in _NAMES.items():
            self._event("M", 0.0, "process_name", process, args={"name": name})

    def serving(self, requests: Requests) -> None:
        self._requests = requests

    def step(
        self, now_s: float, seconds: float, step: Step, times: StepTimes, allocator: Allocator,
        replica: int,
    ) -> None:  # fmt: skip
        values = {
            "steps": len(times.total_s),
            "decode": len(step.decode),
            "prefill_tokens": sum(chunk.tokens for chunk in step.chunks),
            "limit": step.limit,
            **{f"{name}_s": phase_seconds(times, name) for name in (*PHASES, "overhead")},
        }
        name, process = "prefill" if step.chunks else "decode", self._process(replica)
        self._event("X", now_s, name, process, dur=_microseconds(seconds), args=values)
        batch = len({*step.decode.tolist(), *(chunk.request for chunk in step.chunks)})
        self._event("C", now_s, "batch", process, args={"requests": batch})
        slots = {"reserved": int(allocator.reserved_total), "free": int(allocator.free_slots)}
        self._event("C", now_s, "slots", process, args=slots)

    def sent(self, at_s: float, request: int) -> None:
        self._sent_s[request] = at_s

    def admitted(self, now_s: float, request: int, slots: int, replica: int) -> None:
        if request not in self._doing:
            arrival_s = self._sent_s.pop(request, float(self._requests.arrival_s[request]))
            self._begin(arrival_s, request, "waiting")
        self._change(now_s, request, "prefill", slots=slots)

    def first_token(self, now_s: float, request: int, replica: int) -> None:
        self._change(now_s, request, "decode")

    def resumed(self, now_s: float, request: int, replica: int) -> None:
        self._change(now_s, request, "decode")

    def ended(self, now_s: float, request: int, replica: int) -> None:
        self._end(now_s, request)

    def moved(self, now_s: float, request: int, replica: int) -> None:
        self._change(now_s, request, "waiting")

    def preempted(self, now_s: float, request: int, how: str, replica: int) -> None:
        self._instant(now_s, "preemption", "p", replica, request=request, how=how)
        self._change(now_s, request, "waiting")

    def migrated(self, now_s: float, migration: Migration, replica: int) -> None:
        values = {name: int(value) for name, value in migration._asdict().items()}
        self._instant(now_s, "migration", "p", replica, **values)

    def refreshed(self, now_s: float, bounds: Sequence[int], replica: int) -> None:
        self._instant(
            now_s, "bucket refresh", "g", replica, bounds=[int(bound) for bound in bounds]
        )

    def close(self) -> None:
        self._file.write("\n]}\n")
        self._file.close()

    def _change(self, now_s: float, request: int, doing: str, **values: Any) -> None:
        self._end(now_s, request)
        self._begin(now_s, request, doing, **values)

    def _begin(self, now_s: float, request: int, doing: str, **values: Any) -> None:
        self._doing[request] = doing
        self._event("b", now_s, doing, _REQUESTS, cat="request", id=request, args=values)

    def _end(self, now_s: float, request: int) -> None:
        doing = self._doing.pop(request)
        self._event("e", now_s, doing, _REQUESTS, cat="request", id=request)

    def _instant(self, now_s: float, name: str, scope: str, replica: int, **values: Any) -> None:
        self._event("i", now_s, name, self._process(replica), s=scope, args=values)

    def _process(self, replica: int) -> int:
        """That which shows a replica, named as it is first told of."""
        if not replica:
            return _STEPS
        if (process := _REQUESTS + replica) not in self._named:
            self._named.add(process)
            name = f"steps of replica {replica}"
            self._event("M", 0.0, "process_name", process, args={"name": name})
        return process

    def _event(self, kind: str, now_s: float, name: str, process: int, **rest: Any) -> None:
        event = {"ph": kind, "ts": _microseconds(now_s), "name": name, "pid": process, "tid": 0}
        self._file.write(self._separator + json.dumps({**event, **rest}, separators=(",", ":")))
        self._separator = ",\n"


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)

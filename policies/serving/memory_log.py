"""A log of physical memory: which request held which token slots, from when until when.

A row is a run of slots of a replica that one request holds, that lie together and were taken
together. Recording begins when a share of the requests has ended, so that memory is in steady use,
and ends after `MOST_ROWS`, so that the log of a long run stays readable; what is held then ends
then.
Slots that grow within a stretch of equal steps count from the stretch's beginning; slots that
several requests share are each one's.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from policies.serving.recorder import CsvRows, Recorder

if TYPE_CHECKING:
    from policies.allocators.allocator import Allocator
    from policies.allocators.capabilities import Migration
    from policies.engines.scheduled_step import Step
    from policies.memory.step_times import StepTimes
    from policies.requests.requests import Requests

BEGIN = 0.3
"""Share of the requests that have ended when recording begins (assumed)."""
MOST_ROWS = 200_000
Run = tuple[int, int]
"""First slot, and how many."""


class MemoryLog(Recorder):
    """Writes a run of slots when it is given up."""

    COLUMNS = ("request", "first_slot", "slots", "from_s", "until_s", "replica")

    def __init__(self, path: Path, requests: Requests) -> None:
        self._rows = CsvRows(path, self.COLUMNS)
        self._wait = int(BEGIN * len(requests))
        """Requests still to end before recording begins."""
        self._written = 0
        self._held: dict[int, dict[int, dict[Run, float]]] = defaultdict(dict)
        """What each resident of each replica holds, since when; as the last stretch left it."""
        self._known: dict[int, dict[int, int]] = defaultdict(dict)
        """Slots each had reserved then; -1 where it must be looked at again."""
        self._now_s = 0.0

    def serving(self, requests: Requests) -> None:
        self._wait = int(BEGIN * len(requests))

    def step(
        self, now_s: float, seconds: float, step: Step, times: StepTimes, allocator: Allocator,
        replica: int,
    ) -> None:  # fmt: skip
        if self._wait > 0 or self._written > MOST_ROWS:
            return
        self._now_s = max(self._now_s, now_s + seconds)
        residents = self._known[replica]
        for request, known in residents.items():
            reserved = int(allocator.reserved[request])
            if reserved != known:
                residents[request] = reserved
                self._look(request, now_s, allocator, replica)
        held = sum(len(runs) for each in self._held.values() for runs in each.values())
        if self._written + held > MOST_ROWS:
            self._end(self._now_s)

    def _look(self, request: int, now_s: float, allocator: Allocator, replica: int) -> None:
        """Compare what the request holds now with before: close rows and open new ones."""
        units = allocator.units(request)
        found = set(zip(units.start.tolist(), units.size.tolist(), strict=True))
        held = self._held[replica].setdefault(request, {})
        gone = {run: held.pop(run) for run in held.keys() - found}
        self._write(request, gone, now_s, replica)
        held.update(dict.fromkeys(found - held.keys(), now_s))

    def admitted(self, now_s: float, request: int, slots: int, replica: int) -> None:
        self._known[replica][request] = -1

    def migrated(self, now_s: float, migration: Migration, replica: int) -> None:
        self._known[replica][migration.request] = -1

    def preempted(self, now_s: float, request: int, how: str, replica: int) -> None:
        self._leave(now_s, request, replica)

    def moved(self, now_s: float, request: int, replica: int) -> None:
        self._leave(now_s, request, replica)

    def ended(self, now_s: float, request: int, replica: int) -> None:
        self._wait -= 1
        self._leave(now_s, request, replica)

    def _leave(self, now_s: float, request: int, replica: int) -> None:
        del self._known[replica][request]
        self._write(request, self._held[replica].pop(request, {}), now_s, replica)

    def close(self) -> None:
        self._end(self._now_s)
        self._rows.close()

    def _end(self, now_s: float) -> None:
        """What is held still ends here, and nothing more is written."""
        for replica, residents in self._held.items():
            for request, held in residents.items():
                self._write(request, held, now_s, replica)
        self._held.clear()
        self._written = MOST_ROWS + 1

    def _write(self, request: int, held: dict[Run, float], until_s: float, replica: int) -> None:
        """Runs that touch and began together are one row."""
        if self._written > MOST_ROWS:
            return
        joined: list[tuple[int, int, float]] = []
        for (first, slots), from_s in sorted(held.items()):
            if joined and (sum(joined[-1][:2]), joined[-1][2]) == (first, from_s):
                joined[-1] = (joined[-1][0], joined[-1][1] + slots, from_s)
            else:
                joined.append((first, slots, from_s))
        for first, slots, from_s in joined:
            self._rows.add([request, first, slots, from_s, until_s, replica])
        self._written += len(joined)

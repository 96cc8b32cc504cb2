"""How far a run is: points done, points a minute, time left; a bar on a terminal, else lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from hwmodel.measure.through import Through

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

T = TypeVar("T")
_LINE_EVERY_S = 10.0
_FIRST, _LONG_S = 2, 60.0
"""Steps after which a stage that takes longer than this says how long."""


class ProgressStep(Protocol):
    """One more is done."""

    def __call__(self, note: str = "") -> None: ...


LATE_S = 2.0
"""Before that nothing is said of what most often is over by then."""


class Progress:
    """Writes to stderr, so that results on stdout stay clean."""

    def __init__(self, terminal: bool | None = None) -> None:
        self._terminal = sys.stderr.isatty() if terminal is None else terminal
        self._bars: Bars | None = None

    @contextmanager
    def stage(
        self, name: str, total: int, done: int = 0, late_s: float = 0.0, after: int = 0
    ) -> Iterator[ProgressStep]:
        """Count through `total` steps of which `done` were there already; yields the step, which
        takes a few words to show beside the count. Nothing is shown of the first `late_s`. after:
        steps of the stages that follow, about as long: the time left is said of all."""
        if self._terminal and total > done:
            with self._bar(name, total, done, late_s, after) as step:
                yield step
        else:
            yield _Lines(name, total, done, late_s > 0, after)

    def through(self, name: str) -> Through:
        """What passes things on and shows how far they are, where that takes longer than LATE_S."""

        def passed(items: Iterable[T], total: int) -> Iterator[T]:
            with self.stage(name, total, late_s=LATE_S) as step:
                for item in items:
                    yield item
                    step()

        return passed

    @contextmanager
    def _bar(
        self, name: str, total: int, done: int, late_s: float, after: int
    ) -> Iterator[ProgressStep]:
        from rich.console import Console  # heavy
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as Bars

        told = TextColumn("{task.description} {task.fields[note]}", markup=False)
        columns = (MofNCompleteColumn(), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        # workers are forked: no thread that refreshes, and the streams stay what they are
        bars = Bars(
            told, *columns, console=Console(stderr=True, markup=False),
            auto_refresh=False, redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        task = bars.add_task(name, total=total, completed=done, note="")
        begun, count = time.monotonic(), done

        def step(note: str = "") -> None:
            nonlocal count
            count += 1
            if after and not note:
                rest_s = (total - count + after) * (time.monotonic() - begun) / (count - done)
                note = f"({duration(rest_s)} left with what follows)"
            if self._bars is None and time.monotonic() - begun >= late_s:
                self._bars = bars
                bars.start()
            bars.update(task, advance=1, note=note, refresh=self._bars is not None)

        try:
            if not late_s:
                self._bars = bars
                bars.start()
            yield step
        finally:
            if self._bars is not None:
                bars.stop()
            self._bars = None

    def say(self, text: str) -> None:
        """A line of its own, beside the count."""
        if self._bars is not None:
            self._bars.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)


class _Lines:
    """A line every few seconds, of what takes more than a minute one after the first steps, and one
    at the end; of a late stage that only after another one."""

    def __init__(self, name: str, total: int, done: int, late: bool, after: int) -> None:
        self._name, self._total, self._done, self._count = name, total, done, done
        self._after = after
        self._start = self._last = time.monotonic()
        self._ends = not late

    def __call__(self, note: str = "") -> None:
        self._count += 1
        now = time.monotonic()
        new, elapsed_s = self._count - self._done, now - self._start
        due = now - self._last >= _LINE_EVERY_S
        ahead = self._total - self._count + self._after
        long = new == _FIRST and ahead * elapsed_s / new > _LONG_S
        if due or long or (self._ends and self._count == self._total):
            self._last, self._ends = now, True
            status = _status(self._name, self._count, self._total, new, elapsed_s, self._after)
            print(f"{status}, {note}" if note else status, file=sys.stderr, flush=True)


def _status(name: str, count: int, total: int, new: int, elapsed_s: float, after: int) -> str:
    rate = new / elapsed_s if elapsed_s > 0 else 0.0
    left = (total - count + after) / rate if rate else 0.0
    bar = "#" * (20 * count // max(total, 1))
    return (
        f"{name} {count}/{total} [{bar:<20}] {60 * rate:.1f} a minute, "
        f"{duration(elapsed_s)} gone, {duration(left)} left" + " with what follows" * bool(after)
    )


def duration(seconds: float) -> str:
    """`75` -> `1:15`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

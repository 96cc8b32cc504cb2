"""How far a run is: points done, points a minute, time left; a bar on a terminal, else lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

_LINE_EVERY_S = 10.0


class Step(Protocol):
    """One more is done."""

    def __call__(self, note: str = "") -> None: ...


class Progress:
    """Writes to stderr, so that results on stdout stay clean."""

    def __init__(self, terminal: bool | None = None) -> None:
        self._terminal = sys.stderr.isatty() if terminal is None else terminal
        self._width = 0

    @contextmanager
    def stage(self, name: str, total: int, done: int = 0) -> Iterator[Step]:
        """Count through `total` steps of which `done` were there already; yields the step, which
        takes a few words to show beside the count."""
        start = last = time.monotonic()
        count = done

        def step(note: str = "") -> None:
            nonlocal count, last
            count += 1
            now = time.monotonic()
            if self._terminal or count == total or now - last >= _LINE_EVERY_S:
                last = now
                status = _status(name, count, total, count - done, now - start)
                self._show(f"{status}, {note}" if note else status)

        if total > done and self._terminal:
            self._show(f"{name} {done}/{total}")
        try:
            yield step
        finally:
            if self._terminal and self._width:
                print(file=sys.stderr, flush=True)
                self._width = 0

    def say(self, text: str) -> None:
        """A line of its own, beside the count."""
        clear = "\r" + " " * self._width + "\r" if self._width else ""
        self._width = 0
        print(clear + text, file=sys.stderr, flush=True)

    def _show(self, text: str) -> None:
        if not self._terminal:
            print(text, file=sys.stderr, flush=True)
            return
        print("\r" + text.ljust(self._width), end="", file=sys.stderr, flush=True)
        self._width = len(text)


def _status(name: str, count: int, total: int, new: int, elapsed_s: float) -> str:
    rate = new / elapsed_s if elapsed_s > 0 else 0.0
    left = (total - count) / rate if rate else 0.0
    bar = "#" * (20 * count // max(total, 1))
    return (
        f"{name} {count}/{total} [{bar:<20}] {60 * rate:.1f} a minute, "
        f"{duration(elapsed_s)} gone, {duration(left)} left"
    )


def duration(seconds: float) -> str:
    """`75` -> `1:15`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

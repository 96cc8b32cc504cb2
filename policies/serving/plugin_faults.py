"""Which plug-in is at fault where no value that a method returned says so, and at which line."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from hwmodel.description.description import DescriptionError
from policies.serving.plugins import LOADED


def with_file(said: str) -> str:
    """What was said of something that a plug-in defines, with its file where that is not in it."""
    for name, plugin in LOADED.items():
        for kind, stated in plugin.defined:
            words = ("engine" if kind == "scheduler" else kind, kind)
            if name not in said and any(f"{word} {stated}" in said for word in words):
                return f"{said} ({plugin.file})"
    return said


def loaded() -> str:
    """What to add to an error that is no plug-in's own while some are there; empty: none is."""
    files = ", ".join(plugin.file for plugin in LOADED.values())
    return files and f"; with {files}, which may have changed what is not its own"


def at_work(frame: FrameType | None) -> str | None:
    """FILE:LINE of the plug-in that runs in a frame, as far in as there is one; None: none does."""
    files = {plugin.file for plugin in LOADED.values()}
    while frame is not None:
        if frame.f_code.co_filename in files:
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


@contextmanager
def within(seconds: float, who: str) -> Iterator[None]:
    """Raises DescriptionError in what takes longer, with the line of the plug-in that it is at.
    Threads but the main one have no limit, and systems without such a timer."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return

    def late(number: int, frame: FrameType | None) -> None:
        place = at_work(frame)
        said = f"{who} is not done after {seconds:g} s"
        raise DescriptionError(f"{place}: {said}" if place else said)

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again, where what is raised is swallowed
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

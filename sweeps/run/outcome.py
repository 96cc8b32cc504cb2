"""What becomes of a task, wherever it is done."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from hwmodel.description.description import DescriptionError
from policies.allocators.kv_layout import DoesNotFit
from policies.serving.counted_runs import RUNS
from policies.serving.plugin_faults import at_work, blamed, with_file
from policies.serving.plugins import LOADED
from sweeps.analyse.rows import flat
from sweeps.plan.experiment import ResultRefused

Work = Callable[[Any], Any]


@dataclass(frozen=True)
class Outcome:
    """What became of one task: a value, or why there is none."""

    index: int
    value: Any = None
    error: str | None = None
    at_fault: bool = False
    """The user's input is what failed."""
    misfit: bool = False
    """A device has no room for a model, or for one of its requests."""
    wall_s: float = 0.0
    lost: bool = False
    """Its worker died, and the task may be tried again."""
    runs: Counter[str] = field(default_factory=Counter)
    """Simulations that it took, as of `policies.serving.counted_runs.RUNS`."""


def attempt(work: Work, index: int, task: Any) -> Outcome:
    """Do one task; an exception becomes an outcome that says why. Ctrl-C is none of them."""
    start, before = time.perf_counter(), RUNS.copy()
    try:
        with _interrupt_kept():
            value = work(task)
    except DescriptionError as error:
        unfit = isinstance(error, DoesNotFit)
        return Outcome(index, error=with_file(str(error)), at_fault=True, misfit=unfit)
    except ResultRefused as error:
        return Outcome(index, error=str(error))
    except MemoryError:
        return Outcome(index, error="out of memory")
    except Exception as error:
        if (fault := blamed(error)) is not None:
            return Outcome(index, error=str(fault), at_fault=True)
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(place.filename)}:{place.lineno}"
        return Outcome(index, error=f"{type(error).__name__}: {error} (at {where})")
    return Outcome(index, value, wall_s=time.perf_counter() - start, runs=RUNS - before)


def repeated(work: Work, task: Any, first: Outcome) -> Outcome:
    """The outcome of a task; at fault where the same task, done again, has another one: a plug-in
    draws without a seed, or keeps something from run to run."""
    if first.error is not None:
        return first
    again = attempt(work, first.index, task)
    before, after = flat(first.value), {} if again.error else flat(again.value)
    changed = [key for key, value in before.items() if repr(after.get(key)) != repr(value)]
    if not changed:
        return first
    key = changed[0]
    then = again.error or f"{key} is {before[key]!r}, and then {after.get(key)!r}"
    files = ", ".join(sorted(plugin.file for plugin in LOADED.values()))
    why = "is there a draw without a seed, or what outlasts a run?"
    said = f"{files}: two runs of one seed differ ({then}); {why}"
    return Outcome(first.index, error=said, at_fault=True)


@contextmanager
def _interrupt_kept() -> Iterator[None]:
    """Ctrl-C is raised, with the line of a plug-in that it met; and again at the end if something
    on the way has swallowed it: what comes while the compiler calls back into Python is printed and
    forgotten there."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    pressed: KeyboardInterrupt | None = None

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        place = at_work(frame)
        pressed = KeyboardInterrupt(f"it was at {place}") if place else KeyboardInterrupt()
        raise pressed

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if pressed is not None:
            raise pressed

"""Which plug-in is at fault, and at which line."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from hwmodel.description.description import DescriptionError
from policies.serving.plugins import LOADED, last_step


def with_file(said: str) -> str:
    """What was said of something that a plug-in defines, with its file where that is not in it."""
    for name, plugin in LOADED.items():
        for kind, stated in plugin.defined:
            words = ("engine" if kind == "scheduler" else kind, kind)
            if name not in said and any(f"{word} {stated}" in said for word in words):
                return f"{said} ({plugin.file})"
    return said


@contextmanager
def named() -> Iterator[None]:
    """An error in here that is a plug-in's is raised as `blamed` has it."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, DescriptionError) or (fault := blamed(error)) is None:
            raise
        raise fault from error


def blamed(error: BaseException) -> DescriptionError | None:
    """An error while plug-ins are loaded, with the line of that which it came through; else with
    all files, since what one returned may be met anywhere. None: there are none."""
    files = {plugin.file for plugin in LOADED.values()}
    if not files:
        return None
    said = f"{type(error).__name__}: {error}"
    if step := last_step(error, files):
        return DescriptionError(f"{step.name} raised {said}", step.filename, step.lineno)
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(place.filename).name}:{place.lineno}"
    return DescriptionError(
        f"{said} (at {where}): it returned what its base does not expect, or has changed what is "
        "not its own",
        ", ".join(sorted(files)),
    )


def at_work(frame: FrameType | None) -> str | None:
    """FILE:LINE of the plug-in that runs in a frame, as far in as there is one; None: none does."""
    files = {plugin.file for plugin in LOADED.values()}
    while frame is not None:
        if frame.f_code.co_filename in files:
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None

"""A timeline of commands as a file: a picture, a page, or a trace for ui.perfetto.dev."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from hwmodel.description.description import DescriptionError
from hwmodel.oracle.command_log import CommandLog
from hwmodel.specs.device import Device
from sweeps.ask.question import Text, Typed
from sweeps.report.chrome_trace import ENDINGS, chrome_trace, write_trace
from sweeps.report.command_timeline import MOST_CLOCKS, Clocks, clocks, timeline
from sweeps.report.drawing import FORMS
from sweeps.report.picture import Picture, Placed
from sweeps.report.shown import save
from sweeps.sections.chart import Spans
from sweeps.sections.section import Block, Section

TimelineFile = Annotated[Path, Typed("FILE")]
ClocksText = Annotated[Text, Typed("A:B")]
_PICTURES = (*FORMS, ".html")


def window_of(file: Path | None, window: str | None) -> Clocks | None:
    """The window that is asked for, None for the default. Raises DescriptionError for a file of
    another kind, a folder that is not there, and a window without a file."""
    if file is None:
        if window is not None:
            raise DescriptionError("needs --timeline", "--clocks")
        return None
    traced = file.name.endswith(ENDINGS)
    if not traced and file.suffix not in _PICTURES:
        known = ", ".join((*_PICTURES, *ENDINGS))
        raise DescriptionError(f"expected a name that ends in {known}", file)
    if not file.parent.is_dir():
        raise DescriptionError("no such folder", file.parent)
    return None if window is None else clocks(window, None if traced else MOST_CLOCKS)


def drawn(device: Device, logs: list[tuple[int, CommandLog]], window: Clocks | None) -> Spans:
    """Logs by channel as a chart. Raises DescriptionError where nothing is in the window."""
    return timeline(device.memory, device.name, logs, window)


def write(file: Path, device: Device, chart: Spans, answer: list[Block]) -> None:
    """Write a chart of commands as `file` asks; a page has the `answer` above it."""
    if file.name.endswith(ENDINGS):
        write_trace(file, chrome_trace(chart, device.name, float(device.memory.clock.tCK)))
    elif file.suffix == ".html":
        save([Section(device.name, [*answer, chart])], file)
    else:
        Picture("timeline", [Placed(device.name, chart)]).save(file)

"""`bankwise replay --banks`: activations and conflicts, channel by bank, in JSON and as a table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.measure.bank_map import BankMap
from hwmodel.measure.open_loop import LogSink
from hwmodel.oracle.command_log import CommandLog
from sweeps.sections.section import Grid, Say, Section

_SHADES = " ▁▂▃▄▅▆▇█"


def sink(*takers: LogSink | None) -> LogSink | None:
    """What hands commands to each of these; None where there are none."""
    there = [each for each in takers if each is not None]
    if len(there) < 2:
        return there[0] if there else None

    def each(channel: int, log: CommandLog) -> None:
        for taker in there:
            taker(channel, log)

    return each


def record(found: BankMap) -> dict[str, Any]:
    """Counts, a list of banks a channel."""
    return {"activations": found.activations.tolist(), "conflicts": found.conflicts.tolist()}


def sheet(found: BankMap) -> Section:
    """A line a channel, a mark a bank: the taller, the more, up to the most of all."""
    heads = ["channel", "activations by bank", "all", "conflicts by bank", "all"]
    rows = [
        [str(channel), _marks(opened, found.activations.max()), f"{opened.sum():,}",
         _marks(lost, found.conflicts.max()), f"{lost.sum():,}"]
        for channel, (opened, lost) in enumerate(
            zip(found.activations, found.conflicts, strict=True)
        )
    ]  # fmt: skip
    most = f"The tallest mark is {found.activations.max():,} activations of a bank"
    even = found.activations.sum(axis=1)
    spread = f"{even.max() / max(even.mean(), 1e-9):.2f} times the mean of channels"
    note = (
        f"{most}, and {found.conflicts.max():,} conflicts. The busiest channel has {spread}. A"
        " conflict: the bank was closed for another row, and opened again."
    )
    return Section("Banks", [Grid("Channel by bank", heads, rows, text=True), Say(note)])


def _marks(counts: NDArray[np.int64], most: int) -> str:
    """A mark for each bank, none for nothing."""
    share = counts / max(int(most), 1) * (len(_SHADES) - 1)
    return "".join(_SHADES[int(np.ceil(each))] for each in share)

"""DRAM commands by bank over time, with the data bus, as a chart: from a run or a command log."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.measure.bounds import SAME_BANK
from hwmodel.oracle.command_log import CODE, LEVEL_FIELDS, CommandLog, clocks_text
from hwmodel.specs.commands import (
    COLUMN_COMMANDS,
    COMMANDS,
    PERIODIC_COMMANDS,
    RANK_COMMANDS,
    READ_COMMANDS,
)
from hwmodel.specs.memory_spec import MemorySpec, row_delay
from sweeps.report.palette import COLOURS
from sweeps.sections.chart import Axis, RowSpan, Spans

CLOCKS = 300
"""Of the window that is shown unless one is asked for."""
MOST_CLOCKS = 20_000
"""Of a window; its commands would be thinner than a pixel."""
_KINDS = {
    "ACT": COLOURS[0], "RD": COLOURS[2], "WR": COLOURS[1], "PRE": COLOURS[5], "CAS": COLOURS[8],
    "REF": COLOURS[3], "periodic": COLOURS[4], "row open": "rgba(47, 126, 216, 0.25)",
    "refreshing": "rgba(155, 95, 192, 0.28)",
}  # fmt: skip
"""What is drawn -> its colour; a read's data has the colour of RD, a write's that of WR; what
lasts has a paler one of the command that began it."""
_PALE = frozenset({"row open", "refreshing"})
_SHORT = {"pseudochannel": "pc", "rank": "rank", "stack": "stack", "bankgroup": "group"}


class Clocks(NamedTuple):
    """A window of time in clocks (CK), without its end."""

    first: float
    last: float


def clocks(text: str, most: int | None = MOST_CLOCKS) -> Clocks:
    """`A:B` as a window of at most so many clocks. Raises DescriptionError."""
    first, colon, last = text.partition(":")
    try:
        found = Clocks(float(first), float(last))
    except ValueError:
        found = Clocks(0, 0)
    if not colon or not 0 <= found.first < found.last <= 2**52:
        raise DescriptionError(f"expected clocks A:B, such as 1000:1300; got {text!r}", "--clocks")
    if most is not None and found.last - found.first > most:
        raise DescriptionError(f"more than {most:,} clocks in one picture", "--clocks")
    return found


class Kept:
    """Takes the commands of a run, and keeps what a timeline of a window needs: of each channel
    those up to its end, without long stretches before it."""

    def __init__(self, memory: MemorySpec, window: Clocks | None) -> None:
        self._memory, self._window = memory, window
        self._logs: dict[int, list[CommandLog]] = {}
        self._columns: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._done: set[int] = set()

    def __call__(self, channel: int, log: CommandLog) -> None:
        """The next commands of a channel."""
        if channel in self._done:
            return
        parts = self._logs.setdefault(channel, [])
        parts.append(log)
        per_ck, last = self._memory.clock.ticks_per_ck, int(log.tick[-1])
        if self._window is not None:
            if len(parts) > 2 and last < self._window.first * per_ck:
                del parts[:-2]
            end = self._window.last * per_ck
        else:
            end = self._warm_end(channel, log)
        if last > end:
            self._done.add(channel)

    def _warm_end(self, channel: int, log: CommandLog) -> float:
        """The tick at which the default window of a channel ends, infinite while it is unknown."""
        if channel not in self._ends:
            at = np.flatnonzero(_columns(log))
            left = _warm(self._memory) - self._columns.get(channel, 0)
            self._columns[channel] = self._columns.get(channel, 0) + len(at)
            if len(at) <= left:
                return math.inf
            self._ends[channel] = int(log.tick[at[left]]) + CLOCKS * self._memory.clock.ticks_per_ck
        return self._ends[channel]

    def logs(self) -> list[tuple[int, CommandLog]]:
        """What was kept, by channel."""
        return [
            (channel, CommandLog(*map(np.concatenate, zip(*parts, strict=True))))
            for channel, parts in sorted(self._logs.items())
        ]


def _columns(log: CommandLog) -> np.ndarray:
    return np.isin(log.command, [CODE[name] for name in COLUMN_COMMANDS])


def _warm(memory: MemorySpec) -> int:
    """Column commands after which both queues have been filled and served once."""
    return memory.requests_held * memory.organisation.pseudochannels


def timeline(
    memory: MemorySpec, title: str, logs: list[tuple[int, CommandLog]], window: Clocks | None
) -> Spans:
    """Commands of the channel that has most of them, in `window` or, without one, in the first
    `CLOCKS` clocks after the queues were served once. Raises DescriptionError where nothing was
    logged there."""
    if not logs:
        raise DescriptionError("no commands to draw")
    channel, log = max(logs, key=lambda each: len(each[1].tick))
    log = log.take(np.argsort(log.tick, kind="stable"))
    per_ck = memory.clock.ticks_per_ck
    if window is None:
        columns = np.flatnonzero(_columns(log))
        at = min(_warm(memory), len(columns) // 2)
        first = int(log.tick[columns[at]] if len(columns) else log.tick[0]) // per_ck
        window = Clocks(first, first + CLOCKS)
    seen = (log.tick >= window.first * per_ck) & (log.tick < window.last * per_ck)
    if not seen.any():
        last = clocks_text(memory, int(log.tick[-1]))
        raise DescriptionError(
            f"no command from {window.first:,g} to {window.last:,g}; the last is at {last}",
            "--clocks",
        )
    drawn = _Drawing(memory, log.take(log.tick < window.last * per_ck), window)
    where = f", channel {channel}" if len(logs) > 1 else ""
    return Spans(
        f"{title}{where}: commands from clock {window.first:,g} to {window.last:,g}",
        Axis(f"clocks of {float(memory.clock.tCK):g} ns", zero=False, tight=True), drawn.names(),
        drawn.spans, _KINDS, _PALE, window,
        "A mark is a command while it holds its bus. Banks without a command or an open row are"
        " left out.",
    )  # fmt: skip


class _Drawing:
    """The stretches of a log, row by row."""

    def __init__(self, memory: MemorySpec, log: CommandLog, window: Clocks) -> None:
        self._memory, self._window = memory, window
        self._per_ck = memory.clock.ticks_per_ck
        self._levels = [
            name for name in _SHORT
            if getattr(memory.organisation, f"{name}s") > 1
        ]  # fmt: skip
        self._open: dict[tuple[int, ...], tuple[float, int]] = {}
        self._banks: dict[tuple[int, ...], str] = {}
        self._ranks: set[str] = set()
        self._buses: set[str] = set()
        self.spans: list[RowSpan] = []
        for line in zip(*(values.tolist() for values in log), strict=True):
            self._command(CommandLog(*line))
        for bank in list(self._open):
            self._close(bank, window.last)

    def names(self) -> list[str]:
        """Rows from the top: data buses, ranks, banks in their order."""
        used = {span.row for span in self.spans}
        banks = [name for _, name in sorted(self._banks.items()) if name in used]
        return [*sorted(self._buses), *sorted(self._ranks & used), *banks]

    def _add(self, row: str, start: float, end: float, kind: str, told: str = "") -> None:
        if end > self._window.first and start < self._window.last:
            self.spans.append(RowSpan(row, start, end, kind, told))

    def _clocks(self, ticks: int) -> float:
        return ticks / self._per_ck

    def _named(self, place: CommandLog, levels: tuple[str, ...]) -> str:
        words = [
            f"{_SHORT[name]} {getattr(place, name)}" for name in self._levels if name in levels
        ]
        return " ".join(words)

    def _command(self, c: CommandLog) -> None:
        name, at = COMMANDS[int(c.command)], self._clocks(int(c.tick))
        known = self._memory.commands.get(name)  # a log may have others
        end = at + (1.0 if known is None else float(known.slots))
        if name in RANK_COMMANDS:
            row = self._named(c, ("pseudochannel", "rank")) or "rank"
            self._ranks.add(row)
            kind = "REF" if name in ("REFAB", "RFMAB") else name[:3]
            kind = "periodic" if name in PERIODIC_COMMANDS else kind
            self._add(row, at, end, kind, self._memory.command_name(name))
            self._of_rank(c, name, at)
            return
        bank = tuple(int(getattr(c, level)) for level in LEVEL_FIELDS)
        row = self._banks.setdefault(bank, f"{self._named(c, tuple(_SHORT))} bank {c.bank}".strip())
        kind = "ACT" if name.startswith("ACT") else "REF" if name in ("REFPB", "RFM") else name[:3]
        if name in COLUMN_COMMANDS:
            kind = "RD" if name in READ_COMMANDS else "WR"
            self._data(c, kind, row)
        told = f"{name} row {c.row}" + (f" column {c.column}" if c.column >= 0 else "")
        self._add(row, at, end, kind, told)
        if name in ("ACT", "ACT2"):
            self._open[bank] = at, int(c.row)
        elif name == "PRE" or name.endswith("A"):
            self._close(bank, at)
        elif name in ("REFPB", "RFM"):
            self._refreshing(c, name, at)

    def _of_rank(self, c: CommandLog, name: str, at: float) -> None:
        """What a rank's command does to its banks."""
        own = [bank for bank in self._banks if bank[:2] == (c.pseudochannel, c.rank)]
        for bank in own:
            if name == "PREA":
                self._close(bank, at)
            elif name in ("REFAB", "RFMAB"):
                self._add(self._banks[bank], at, at + self._takes(name), "refreshing", name)

    def _refreshing(self, c: CommandLog, name: str, at: float) -> None:
        """The banks of the set that a REFPB addresses by its first."""
        o = self._memory.organisation
        flat = (int(c.stack) * o.bankgroups + int(c.bankgroup)) * o.banks_per_group + int(c.bank)
        for each in next((s for s in self._memory.refresh_sets() if flat in s), []):
            rest, bank = divmod(each, o.banks_per_group)
            stack, group = divmod(rest, o.bankgroups)
            place = (int(c.pseudochannel), int(c.rank), stack, group, bank)
            if place in self._banks:
                self._add(self._banks[place], at, at + self._takes(name), "refreshing", name)

    def _takes(self, name: str) -> float:
        """Clocks from a refresh to the next activation of its banks."""
        first = self._memory.activate_command
        ticks = row_delay(self._memory, name, first, SAME_BANK)
        return self._clocks(ticks)

    def _close(self, bank: tuple[int, ...], at: float) -> None:
        if bank in self._open:
            since, row = self._open.pop(bank)
            self._add(self._banks[bank], since, at, "row open", f"row {row}")

    def _data(self, c: CommandLog, kind: str, bank: str) -> None:
        """The data of a column command on the data bus of its pseudo-channel."""
        memory = self._memory
        slots = memory.data.read if kind == "RD" else memory.data.write
        several = memory.organisation.pseudochannels > 1
        bus = f"data bus pc {c.pseudochannel}" if several else "data bus"
        self._buses.add(bus)
        begin = int(c.tick) + memory.ticks(slots.latency)
        for a, b in slots.segments:
            start, end = (self._clocks(begin + memory.ticks(each)) for each in (a, b))
            self._add(bus, start, end, kind, f"data of {bank}")

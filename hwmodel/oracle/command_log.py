"""A log of DRAM commands as arrays, and its CSV form (`replay --commands`)."""

from __future__ import annotations

from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.description.description import DescriptionError, nearest
from hwmodel.specs.commands import COMMANDS, KINDS
from hwmodel.specs.memory_spec import MemorySpec

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

CODE = {name: code for code, name in enumerate(COMMANDS)}
"""Number of each command in a log."""
LEVEL_FIELDS = ("pseudochannel", "rank", "stack", "bankgroup", "bank")


class CommandLog(NamedTuple):
    """Commands in the order of issue: int64 arrays of one length.

    `tick` counts ticks; `command` indexes `hwmodel.specs.commands.COMMANDS`; `bank` is within its
    group. -1 where a field is not addressed.
    """

    tick: Ints
    command: Ints
    pseudochannel: Ints
    rank: Ints
    stack: Ints
    bankgroup: Ints
    bank: Ints
    row: Ints
    column: Ints

    def take(self, which: Ints | Flags) -> CommandLog:
        """The commands at `which` (indices or a mask)."""
        return CommandLog(*(values[which] for values in self))


def clocks_text(memory: MemorySpec, ticks: int) -> str:
    """Ticks in CK, without a trailing .0."""
    per_ck = memory.clock.ticks_per_ck
    return str(ticks // per_ck) if ticks % per_ck == 0 else str(ticks / per_ck)


def csv_columns(memory: MemorySpec, channels: bool) -> list[str]:
    """Columns of the CSV of this memory; `channels`: more than one channel stands in the file."""
    o = memory.organisation
    return [
        *(["channel"] if channels else []),
        *(["pseudochannel"] if o.pseudochannels > 1 else []),
        "cycle", "command", "rank",
        *(["stack"] if o.stacks > 1 else []),
        "bankgroup", "bank", "row", "column",
    ]  # fmt: skip


def write_csv(
    file: IO[str], memory: MemorySpec, log: CommandLog, channel: int | None = None, *,
    header: bool = True,
) -> None:  # fmt: skip
    """Append `log` to `file`; `channel` where it holds several; `header` for the first chunk."""
    columns = csv_columns(memory, channel is not None)
    if header:
        file.write(",".join(columns) + "\n")
    texts: list[list[str]] = []
    for name in columns:
        if name == "channel":
            texts.append([str(channel)] * len(log.tick))
        elif name == "cycle":
            texts.append([clocks_text(memory, tick) for tick in log.tick.tolist()])
        elif name == "command":
            called = [memory.command_name(kind) for kind in COMMANDS]
            texts.append([called[code] for code in log.command.tolist()])
        else:
            values = getattr(log, name).tolist()
            texts.append(["" if value < 0 else str(value) for value in values])
    file.writelines(",".join(fields) + "\n" for fields in zip(*texts, strict=True))


def read_csv(memory: MemorySpec, path: str | Path) -> list[tuple[int, CommandLog]]:
    """Logs of the channels in a CSV, by channel (0 where it has no such column).

    Raises DescriptionError with file and line.
    """
    lines = _read_lines(path)
    columns = [name.strip() for name in lines[0].split(",")] if lines else []
    known = ["channel", *csv_columns(memory, False)]
    for name in columns:
        if name not in known:
            raise DescriptionError(f"unknown column {name!r}; {nearest(name, known)}", path, 1)
    for name in known[1:]:
        if columns.count(name) != 1:
            raise DescriptionError(f"expected one column {name!r}: {','.join(known[1:])}", path, 1)
    for number, line in enumerate(lines[1:], 2):
        if line.count(",") != len(columns) - 1:
            got = line.count(",") + 1
            raise DescriptionError(f"expected {len(columns)} fields; got {got}", path, number)
    # one split of the whole is several times faster than one a line
    flat = ",".join(lines[1:]).split(",") if len(lines) > 1 else []
    texts = {name: flat[place :: len(columns)] for place, name in enumerate(columns)}
    return _logs(memory, path, texts, len(lines) - 1)


def _read_lines(path: str | Path) -> list[str]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DescriptionError(f"not UTF-8 text (byte {error.start})", path) from None
    except OSError as error:
        raise DescriptionError(f"cannot be read: {error.strerror}", path) from None
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise DescriptionError("is empty; expected a header and commands", path)
    return lines


def _logs(
    memory: MemorySpec, path: str | Path, texts: dict[str, list[str]], count: int
) -> list[tuple[int, CommandLog]]:
    """Columns of text to one log a channel."""
    zero = np.zeros(count, dtype=np.int64)
    fields = {
        name: _integers(path, name, texts[name]) if name in texts else zero
        for name in ("channel", *LEVEL_FIELDS, "row", "column")
    }
    if "stack" not in texts:
        fields["stack"] = np.where(fields["bank"] >= 0, 0, -1)
    tick = _ticks(memory, path, texts["cycle"])
    command = _commands(memory, path, texts["command"])
    channel = fields.pop("channel")
    log = CommandLog(tick, command, **fields)
    return [(int(number), log.take(channel == number)) for number in np.unique(channel)]


def _integers(path: str | Path, name: str, texts: list[str]) -> Ints:
    """A column of integers; an empty field is -1."""
    values = {text: -1 for text in set(texts) if not text.strip()}
    for text in set(texts) - set(values):
        if not (text.strip().isascii() and text.strip().isdigit() and len(text) < 19):
            line = texts.index(text) + 2
            raise DescriptionError(f"expected a whole number; got {text!r}", path, line, name)
        values[text] = int(text)
    return np.array([values[text] for text in texts], dtype=np.int64)


def _ticks(memory: MemorySpec, path: str | Path, texts: list[str]) -> Ints:
    """Cycles in CK to ticks; a cycle that is not on a tick is refused."""
    per_ck = memory.clock.ticks_per_ck
    try:
        cycles = np.array(texts, dtype=np.float64)
        wrong = np.flatnonzero(~(np.abs(cycles) < 2**52))
    except ValueError:
        wrong = np.array([i for i, text in enumerate(texts) if not _is_number(text)])
    if len(wrong) == 0:
        ticks = np.rint(cycles * per_ck)
        wrong = np.flatnonzero((np.abs(cycles * per_ck - ticks) > 1e-6) | (cycles < 0))
    if len(wrong):
        at = int(wrong[0])
        unit = "a whole clock" if per_ck == 1 else f"1/{per_ck} of a clock"
        raise DescriptionError(
            f"expected a cycle to {unit}; got {texts[at]!r}", path, at + 2, "cycle"
        )
    return ticks.astype(np.int64)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _commands(memory: MemorySpec, path: str | Path, texts: list[str]) -> Ints:
    """A column of command names to codes."""
    codes = {memory.command_name(kind): CODE[kind] for kind in (*KINDS, *memory.periodic)}
    for text in set(texts) - set(codes):
        line = texts.index(text) + 2
        raise DescriptionError(
            f"no command {text!r}; {nearest(text, list(codes))}", path, line, "command"
        )
    return np.array([codes[text] for text in texts], dtype=np.int64)

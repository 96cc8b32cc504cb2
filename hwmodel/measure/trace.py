"""Access traces, read in chunks: text in any of `trace_formats`, plain or gzip, whose format is
that of its first line; or `.npz` (`address`, `write` and, if it likes, `size`, `picosecond`, and
`begin`, when the memory's clock began).

An access is one burst, an address inside it is aligned down; with a size, it is that many bytes, in
as many bursts as they touch, and a write of less than a burst is a partial write. Times count from
`begin`, else from the first access, in ticks of the memory; one before those above it counts as
theirs.
"""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.description.packed import is_packed
from hwmodel.kernel.kernel_names import READ, WRITE
from hwmodel.kernel.limits import Int
from hwmodel.measure.simulator_traces import (
    FORMATS,
    format_of,
    kinds,
    level_sizes,
    to_addresses,
    to_bursts,
)
from hwmodel.measure.trace_format import MOST_BYTES, Accesses, Format
from hwmodel.measure.trace_formats.csv_columns import EXAMPLE
from hwmodel.specs.device import Device

CHUNK = 1 << 20
"""Accesses read at once."""
LONGEST = 1 << 20
"""Bytes of a line."""
MOST_NPZ = 4 << 30
"""Bytes of the arrays of an `.npz`, which are read whole (assumed): some 2 * 10^8 accesses."""
MOST_TICKS = 1 << 42
"""From the first access of a trace to its last: some twenty minutes."""


class TraceChunk(NamedTuple):
    """Accesses in the order of the trace, int64 (n,)."""

    address: Int
    """Bytes."""
    kind: Int
    """READ, WRITE or PARTIAL_WRITE."""
    arrival: Int | None = None
    """Ticks since the first access of the trace; None where it has no times."""


class _Clock:
    """Ticks of a memory from the times of a trace."""

    def __init__(self, device: Device, unit: str, begin: int | None = None) -> None:
        """begin: when the memory's clock began; None: with the first access."""
        clock = device.memory.tick_clock
        self._cycle_ticks, self._tick_ps = clock.ticks_per_ck, clock.ns_of_ticks(1) * 1e3
        self._unit, self._begin = unit, begin or 0
        self._begun = begin is not None

    def ticks(self, time: Int) -> Int | None:
        """Ticks since the clock began, none below 0; None where the trace has no times.
        Raises ValueError with the first index above MOST_TICKS, as its argument."""
        if not self._unit:
            return None
        if not self._begun:
            self._begin, self._begun = int(time[0]), True
        gone = np.maximum(time - self._begin, 0)
        if self._unit == "cycle":
            ticks = gone * self._cycle_ticks
        else:
            ticks = np.round(gone / self._tick_ps).astype(np.int64)
        late = (gone > MOST_TICKS * max(self._tick_ps, 1)) | (ticks > MOST_TICKS)
        if late.any():
            raise ValueError(int(late.argmax()))
        return ticks


def read_trace(path: str | Path, device: Device, single_channel: bool) -> Iterator[TraceChunk]:
    """Yield the accesses of a trace in chunks; addresses are the device's, or local to a channel.
    Raises DescriptionError with file and line."""
    file = Path(path)
    if file.is_dir():
        raise DescriptionError("is a directory; expected a trace", file)
    if not file.is_file():
        raise DescriptionError("no such file", file)
    if file.stat().st_size == 0:
        raise DescriptionError("is empty; expected lines such as 'R 0x1f40'", file)
    if file.suffix == ".npz":
        yield from _read_npz(file, device)
    else:
        yield from _Text(file, device, single_channel).chunks()


def _read_npz(file: Path, device: Device) -> Iterator[TraceChunk]:
    try:
        _refuse_bomb(file)
        with np.load(file, allow_pickle=False) as data:
            missing = {"address", "write"} - set(data.files)
            if missing:
                raise DescriptionError(f"has no array {sorted(missing)[0]!r}", file)
            address, write = data["address"], data["write"]
            size = data["size"] if "size" in data.files else None
            time = data["picosecond"] if "picosecond" in data.files else None
            begin = data["begin"] if "begin" in data.files else None
    except _NOT_NPZ as error:
        raise DescriptionError(f"is not an .npz file: {error}", file) from None
    if address.ndim != 1 or address.shape != write.shape or address.dtype.kind not in "ui":
        raise DescriptionError(
            "expected `address` (integers) and `write` (bool) of one length", file
        )
    if not len(address):
        raise DescriptionError("holds no accesses", file)
    if address.dtype.kind == "i" and address.min() < 0:
        raise DescriptionError(f"negative address at index {int(address.argmin())}", file)
    if address.max() > np.iinfo(np.int64).max - 2 * MOST_BYTES:
        raise DescriptionError(f"address {int(address.max()):#x} is beyond any memory", file)
    if size is not None and (size.shape != address.shape or size.dtype.kind not in "ui"):
        raise DescriptionError("expected `size` (bytes, integers) as long as `address`", file)
    if size is not None and (bad := (size < 1) | (size > MOST_BYTES)).any():
        at = int(bad.argmax())
        why = f"{size[at]} B at index {at}; expected 1 to {MOST_BYTES:,} B"
        raise DescriptionError(why, file)
    if time is not None and (time.shape != address.shape or time.dtype.kind not in "ui"):
        raise DescriptionError("expected `picosecond` (integers) as long as `address`", file)
    if time is not None and (time.astype(np.int64) < 0).any():
        raise DescriptionError("negative or too large `picosecond`", file)
    if begin is not None and (begin.shape or begin.dtype.kind not in "ui"):
        raise DescriptionError("expected `begin` (an integer, picoseconds)", file)
    clock = _Clock(
        device, "" if time is None else "picosecond", None if begin is None else int(begin)
    )
    for at in range(0, len(address), CHUNK):
        part = slice(at, at + CHUNK)
        arrival = None
        if time is not None:
            try:
                arrival = clock.ticks(time[part].astype(np.int64))
            except ValueError as error:
                raise DescriptionError(
                    f"{_TOO_LATE}, at index {at + error.args[0]}", file
                ) from None
        places, writes = address[part].astype(np.int64), (write[part] != 0).astype(np.int64)
        if size is None:
            yield TraceChunk(places, np.where(writes == 1, WRITE, READ), arrival)
        else:
            yield from _in_bursts(device, places, writes, size[part].astype(np.int64), arrival)


_NOT_NPZ = (
    zipfile.BadZipFile, ValueError, EOFError, OSError, zlib.error, MemoryError, RuntimeError,
    OverflowError, SyntaxError,
)  # fmt: skip
"""What numpy and zipfile raise at damaged files, also at those that are encrypted or packed in ways
they do not know."""


def _refuse_bomb(file: Path) -> None:
    """Raise DescriptionError where the arrays have more than MOST_NPZ bytes."""
    with zipfile.ZipFile(file) as archive:
        if (size := sum(each.file_size for each in archive.infolist())) > MOST_NPZ:
            why = f"unpacks to {size >> 20:,} MiB; expected at most {MOST_NPZ >> 20:,} MiB, or text"
            raise DescriptionError(why, file)


_TOO_LATE = f"a time is more than {MOST_TICKS:,} ticks after the first"


def _in_bursts(
    device: Device, address: Int, write: Int, size: Int, arrival: Int | None
) -> Iterator[TraceChunk]:
    """Accesses of so many bytes each, cut into those of the bursts that they touch."""
    burst = device.memory.organisation.burst_bytes
    ends = np.cumsum(size // burst + 2)  # of the bursts at most
    for at in range(0, int(ends[-1]) + 1, CHUNK):
        part = slice(*np.searchsorted(ends, (at, at + CHUNK)))
        if part.start < part.stop:
            when = np.zeros_like(write) if arrival is None else arrival
            each = Accesses(address[part], write[part], size[part], when[part], when[part])
            one = to_bursts(each, burst)
            kind = kinds(one.write, one.size, burst)
            yield TraceChunk(one.address, kind, None if arrival is None else one.cycle)


class _Text:
    """A trace in one of the text formats."""

    def __init__(self, file: Path, device: Device, single_channel: bool) -> None:
        self._file, self._device, self._single = file, device, single_channel
        self._format: Format | None = None
        self._clock: _Clock | None = None
        self._levels = level_sizes(device, single_channel)

    def chunks(self) -> Iterator[TraceChunk]:
        line = 0
        packed = is_packed(self._file)
        with gzip.open(self._file, "rb") if packed else self._file.open("rb") as text:
            while True:
                try:
                    lines = (text.read(CHUNK * 8) + text.readline(LONGEST)).splitlines(
                        keepends=True
                    )
                except (EOFError, OSError, zlib.error) as error:
                    raise DescriptionError(
                        f"truncated or damaged gzip: {error}", self._file, line + 1
                    ) from None
                if not lines:
                    break
                if (line and self._format is None) or max(map(len, lines)) > LONGEST:
                    raise DescriptionError(
                        "expected lines of accesses, such as 'R 0x1f40'", self._file, line + 1
                    )
                yield from self._accesses(lines, line)
                line += len(lines)
        if self._format is None:
            raise DescriptionError("holds no accesses", self._file)

    def _accesses(self, lines: list[bytes], before: int) -> Iterator[TraceChunk]:
        """The accesses of lines that `before` others precede."""
        numbers, kind, size, time, place = self._parse(lines, before)
        if self._format is None or not place:
            return
        address = self._addresses(numbers, place)
        self._clock = self._clock or _Clock(self._device, self._format.time)
        try:
            arrival = self._clock.ticks(np.array(time, np.int64))
        except (ValueError, OverflowError) as error:
            at = error.args[0] if isinstance(error, ValueError) else int(np.argmax(time))
            raise DescriptionError(_TOO_LATE, self._file, place[at]) from None
        if not self._format.sized:
            yield TraceChunk(address, np.array(kind, np.int64), arrival)
            return
        yield from _in_bursts(
            self._device, address, np.array(kind, np.int64), np.array(size, np.int64), arrival
        )

    def _parse(
        self, lines: list[bytes], before: int
    ) -> tuple[list[list[int]], list[int], list[int], list[int], list[int]]:
        """Of each access: the numbers of its address, its kind, its bytes, its time, its line."""
        numbers: list[list[int]] = []
        kind: list[int] = []
        size: list[int] = []
        time: list[int] = []
        place: list[int] = []
        for at, text in enumerate(lines, before + 1):
            bare = text.strip()
            if not bare or bare.startswith(b"#"):
                continue
            form = self._format = self._format or format_of(bare)
            if form is not None and bare == form.header:
                continue
            try:
                parsed = form.parse(bare.split(form.separator))  # type: ignore[union-attr]
            except (ValueError, KeyError, AttributeError):
                raise self._unlike(bare, at) from None
            if any(number < 0 for number in parsed[0]):
                raise DescriptionError("negative address", self._file, at)
            if parsed[3] < 0:
                raise DescriptionError("negative time", self._file, at)
            numbers.append(parsed[0])
            kind.append(parsed[1])
            size.append(parsed[2])
            time.append(parsed[3])
            place.append(at)
        return numbers, kind, size, time, place

    def _unlike(self, line: bytes, at: int) -> DescriptionError:
        shown = line.decode(errors="replace")[:40]
        known = FORMATS if self._format is None else (self._format,)
        told = [f"{each.example!r} ({each.name})" for each in known]
        told += [f"a first line such as {EXAMPLE!r} (csv)"] * (self._format is None)
        forms = " or ".join(told)
        return DescriptionError(f"expected {forms}; got {shown!r}", self._file, at)

    def _addresses(self, numbers: list[list[int]], place: list[int]) -> Int:
        """Byte addresses. Raises DescriptionError where a number is out of range."""
        most = [np.iinfo(np.int64).max - 2 * MOST_BYTES]
        if self._format is not None and self._format.vector:
            most = self._levels
        for row, at in zip(numbers, place, strict=True):
            if len(row) != len(most) or any(map(int.__ge__, row, most)):
                if most is self._levels:
                    sizes = ",".join(map(str, most))
                    what = f"expected {len(most)} numbers below {sizes}; got {str(row)[1:-1]}"
                else:
                    what = f"address {row[0]:#x} is beyond any memory"
                raise DescriptionError(what, self._file, at)
        address = np.array(numbers, np.int64)
        return to_addresses(self._device, address, self._single) if len(most) > 1 else address[:, 0]

"""Access traces, read in chunks: text in any of `trace_formats`, plain or gzip, whose format is
that of its first line; or `.npz` (`address`, `write` and, if it likes, `size`).

An access is one burst, an address inside it is aligned down; with a size, it is that many bytes (in
`.npz` of one burst), and a write of less than a burst is a partial write.
"""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hwmodel.description.description import DescriptionError
from hwmodel.kernel.kernel_names import PARTIAL_WRITE, READ, WRITE
from hwmodel.kernel.timing import Int
from hwmodel.measure.simulator_traces import (
    FORMATS,
    MOST_BYTES,
    Accesses,
    Format,
    format_of,
    kinds,
    level_sizes,
    to_addresses,
    to_bursts,
)
from hwmodel.specs.device import Device

CHUNK = 1 << 20
"""Accesses read at once."""
Chunk = tuple[NDArray[np.int64], NDArray[np.int64]]
"""(byte addresses, kinds: READ, WRITE or PARTIAL_WRITE), both shape (n,)."""


def read_trace(path: str | Path, device: Device, single_channel: bool) -> Iterator[Chunk]:
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
        yield from _read_npz(file, device.memory.organisation.burst_bytes)
    else:
        yield from _Text(file, device, single_channel).chunks()


def _read_npz(file: Path, burst_bytes: int) -> Iterator[Chunk]:
    try:
        with np.load(file, allow_pickle=False) as data:
            missing = {"address", "write"} - set(data.files)
            if missing:
                raise DescriptionError(f"has no array {sorted(missing)[0]!r}", file)
            address, write = data["address"], data["write"]
            size = data["size"] if "size" in data.files else None
    except (zipfile.BadZipFile, ValueError, EOFError, OSError, zlib.error) as error:
        raise DescriptionError(f"is not an .npz file: {error}", file) from None
    if address.ndim != 1 or address.shape != write.shape or address.dtype.kind not in "ui":
        raise DescriptionError(
            "expected `address` (integers) and `write` (bool) of one length", file
        )
    if not len(address):
        raise DescriptionError("holds no accesses", file)
    if address.dtype.kind == "i" and address.min() < 0:
        raise DescriptionError(f"negative address at index {int(address.argmin())}", file)
    if address.max() > np.iinfo(np.int64).max:
        raise DescriptionError(f"address {int(address.max()):#x} is beyond any memory", file)
    if size is not None:
        _check_size(address, size, burst_bytes, file)
    for at in range(0, len(address), CHUNK):
        part = slice(at, at + CHUNK)
        kind = np.where(write[part] != 0, WRITE, READ)
        if size is not None:
            kind[(kind == WRITE) & (size[part] < burst_bytes)] = PARTIAL_WRITE
        yield address[part].astype(np.int64), kind.astype(np.int64)


def _check_size(
    address: NDArray[np.integer], size: NDArray[np.integer], burst_bytes: int, file: Path
) -> None:
    if size.shape != address.shape or size.dtype.kind not in "ui":
        raise DescriptionError("expected `size` (bytes, integers) as long as `address`", file)
    bad = (size < 1) | (size > burst_bytes)
    bad |= address % burst_bytes + size.astype(address.dtype) > burst_bytes
    if bad.any():
        at = int(bad.argmax())
        raise DescriptionError(
            f"{size[at]} B from {int(address[at]):#x} on, at index {at}, are not within one burst"
            f" of {burst_bytes} B",
            file,
        )


class _Text:
    """A trace in one of the text formats."""

    def __init__(self, file: Path, device: Device, single_channel: bool) -> None:
        self._file, self._device, self._single = file, device, single_channel
        self._format: Format | None = None
        self._levels = level_sizes(device, single_channel)

    def chunks(self) -> Iterator[Chunk]:
        with self._file.open("rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
        line = 0
        with gzip.open(self._file, "rb") if zipped else self._file.open("rb") as text:
            while True:
                try:
                    lines = text.readlines(CHUNK * 8)
                except (EOFError, OSError, zlib.error) as error:
                    raise DescriptionError(
                        f"truncated or damaged gzip: {error}", self._file, line + 1
                    ) from None
                if not lines:
                    break
                yield from self._accesses(lines, line)
                line += len(lines)
        if self._format is None:
            raise DescriptionError("holds no accesses", self._file)

    def _accesses(self, lines: list[bytes], before: int) -> Iterator[Chunk]:
        """The accesses of lines that `before` others precede."""
        numbers, kind, size, place = self._parse(lines, before)
        if self._format is None or not place:
            return
        address = self._addresses(numbers, place)
        if not self._format.sized:
            yield address, np.array(kind, np.int64)
            return
        burst = self._device.memory.organisation.burst_bytes
        write, sizes = np.array(kind, np.int64), np.array(size, np.int64)
        ends = np.cumsum(sizes // burst + 2)  # of the bursts at most
        for at in range(0, int(ends[-1]) + 1, CHUNK):
            part = slice(*np.searchsorted(ends, (at, at + CHUNK)))
            if part.start < part.stop:
                each = Accesses(address[part], write[part], sizes[part], write[part], write[part])
                one = to_bursts(each, burst)
                yield one.address, kinds(one.write, one.size, burst)

    def _parse(
        self, lines: list[bytes], before: int
    ) -> tuple[list[list[int]], list[int], list[int], list[int]]:
        """Of each access: the numbers of its address, its kind, its bytes, its line."""
        numbers: list[list[int]] = []
        kind: list[int] = []
        size: list[int] = []
        place: list[int] = []
        for at, text in enumerate(lines, before + 1):
            bare = text.strip()
            if not bare or bare.startswith(b"#"):
                continue
            form = self._format = self._format or format_of(bare)
            try:
                parsed = form.parse(bare.split(form.separator))  # type: ignore[union-attr]
            except (ValueError, KeyError, AttributeError):
                raise self._unlike(bare, at) from None
            if any(number < 0 for number in parsed[0]):
                raise DescriptionError("negative address", self._file, at)
            numbers.append(parsed[0])
            kind.append(parsed[1])
            size.append(parsed[2])
            place.append(at)
        return numbers, kind, size, place

    def _unlike(self, line: bytes, at: int) -> DescriptionError:
        shown = line.decode(errors="replace")[:40]
        known = FORMATS if self._format is None else (self._format,)
        forms = " or ".join(f"{each.example!r} ({each.name})" for each in known)
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

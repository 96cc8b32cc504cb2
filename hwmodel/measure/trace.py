"""Access traces: text (`R 0x1f40`, `W 0x1f40`; plain or gzip) or `.npz` (`address`, `write` and,
if it likes, `size`), in chunks.

An access is one burst, an address inside it is aligned down; with `size`, an access is that many
bytes of a burst, and a write of less than a burst is a partial write.
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

CHUNK = 1 << 20
"""Accesses read at once."""
Chunk = tuple[NDArray[np.int64], NDArray[np.int64]]
"""(byte addresses, kinds: READ, WRITE or PARTIAL_WRITE), both shape (n,)."""


def read_trace(path: str | Path, burst_bytes: int) -> Iterator[Chunk]:
    """Yield the accesses of a trace in chunks. Raises DescriptionError with file and line."""
    file = Path(path)
    if file.is_dir():
        raise DescriptionError("is a directory; expected a trace", file)
    if not file.is_file():
        raise DescriptionError("no such file", file)
    if file.stat().st_size == 0:
        raise DescriptionError("is empty; expected lines such as 'R 0x1f40'", file)
    if file.suffix == ".npz":
        yield from _read_npz(file, burst_bytes)
    else:
        yield from _read_text(file)


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


def _read_text(file: Path) -> Iterator[Chunk]:
    with file.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
    line, found = 0, False
    with gzip.open(file, "rb") if zipped else file.open("rb") as text:
        while True:
            try:
                lines = text.readlines(CHUNK * 8)
            except (EOFError, OSError, zlib.error) as error:
                raise DescriptionError(
                    f"truncated or damaged gzip: {error}", file, line + 1
                ) from None
            if not lines:
                break
            chunk = _parse(lines, file, line)
            line += len(lines)
            if len(chunk[0]):
                found = True
                yield chunk
    if not found:
        raise DescriptionError("holds no accesses", file)


def _parse(lines: list[bytes], file: Path, before: int) -> Chunk:
    address, write = np.empty(len(lines), np.int64), np.empty(len(lines), np.int64)
    n = 0
    for i, text in enumerate(lines):
        parts = text.split()
        if not parts or parts[0].startswith(b"#"):
            continue
        try:
            kind, number = parts
            address[n] = int(number, 0)
            write[n] = {b"R": READ, b"r": READ, b"W": WRITE, b"w": WRITE}[kind]
        except (ValueError, KeyError, OverflowError):
            shown = text.decode(errors="replace").strip()[:40]
            raise DescriptionError(
                f"expected 'R 0x1f40' or 'W 0x1f40'; got {shown!r}", file, before + i + 1
            ) from None
        if address[n] < 0:
            raise DescriptionError("negative address", file, before + i + 1)
        n += 1
    return address[:n], write[:n]

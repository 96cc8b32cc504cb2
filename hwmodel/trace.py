"""Access traces: text (`R 0x1f40`, `W 0x1f40`; plain or gzip) or `.npz` (`address`, `write`), in
chunks."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hwmodel.description import DescriptionError

CHUNK = 1 << 20
"""Accesses read at once."""
Chunk = tuple[NDArray[np.int64], NDArray[np.int64]]
"""(byte addresses, 1 where a write), both shape (n,)."""


def read_trace(path: str | Path) -> Iterator[Chunk]:
    """Yield the accesses of a trace in chunks. Raises DescriptionError with file and line."""
    file = Path(path)
    if file.is_dir():
        raise DescriptionError("is a directory; expected a trace", file)
    if not file.is_file():
        raise DescriptionError("no such file", file)
    if file.stat().st_size == 0:
        raise DescriptionError("is empty; expected lines such as 'R 0x1f40'", file)
    if file.suffix == ".npz":
        yield from _read_npz(file)
    else:
        yield from _read_text(file)


def _read_npz(file: Path) -> Iterator[Chunk]:
    try:
        with np.load(file, allow_pickle=False) as data:
            missing = {"address", "write"} - set(data.files)
            if missing:
                raise DescriptionError(f"has no array {sorted(missing)[0]!r}", file)
            address, write = data["address"], data["write"]
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
    for at in range(0, len(address), CHUNK):
        part = address[at : at + CHUNK]
        yield part.astype(np.int64), (write[at : at + CHUNK] != 0).astype(np.int64)


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
            write[n] = {b"R": 0, b"r": 0, b"W": 1, b"w": 1}[kind]
        except (ValueError, KeyError, OverflowError):
            shown = text.decode(errors="replace").strip()[:40]
            raise DescriptionError(
                f"expected 'R 0x1f40' or 'W 0x1f40'; got {shown!r}", file, before + i + 1
            ) from None
        if address[n] < 0:
            raise DescriptionError("negative address", file, before + i + 1)
        n += 1
    return address[:n], write[:n]

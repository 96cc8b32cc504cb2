"""Files that may be packed with gzip, told by their first bytes, and never unpacked without end."""

from __future__ import annotations

import gzip
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from hwmodel.description.description import DescriptionError

MAGIC = b"\x1f\x8b"
MOST_BYTES = 512 << 20
"""Of a packed file that is read whole, unpacked (assumed: more takes several GiB to read)."""
MOST_LINE = 32 << 20
"""Of a line of a file that is read line by line."""
FREE_BYTES, MOST_TIMES = 4 << 20, 200
"""What has unpacked to more than both of these, the latter times what was read of it, is no text
that says anything (assumed: logs shrink 3 to 30 times, one byte over and over 1,000 times)."""


class _Bounded(io.RawIOBase):
    """Gives what a packed file unpacks to, up to `most` bytes."""

    def __init__(self, path: Path, most: float) -> None:
        self._path, self._most, self._count = path, most, 0
        self._packed = path.open("rb")
        self._file = gzip.GzipFile(fileobj=self._packed)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read1(len(buffer))
        self._count += len(data)
        if self._count > min(self._most, max(FREE_BYTES, MOST_TIMES * self._packed.tell())):
            size = f"{self._count >> 20:,} MiB and more"
            raise DescriptionError(f"unpacks to {size}; expected less, or it unpacked", self._path)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        self._packed.close()
        super().close()


def open_whole(path: Path, most: float = MOST_BYTES) -> io.BufferedReader:
    """A file, unpacked. Reading raises DescriptionError where a packed one has more than `most`
    bytes, or too many for its size; opening raises OSError."""
    return io.BufferedReader(_Bounded(path, most)) if is_packed(path) else path.open("rb")


def open_text(path: Path, most: float = MOST_BYTES, newline: str | None = None) -> TextIO:
    """The same as UTF-8 text."""
    return io.TextIOWrapper(open_whole(path, most), encoding="utf-8", newline=newline)


def lines_of(path: Path) -> Iterator[str]:
    """The lines of UTF-8 text, plain or packed, one at a time. Raises DescriptionError at one above
    MOST_LINE; OSError, EOFError, zlib.error and UnicodeDecodeError where it does not read."""
    with open_text(path, math.inf) as file:
        number = 1
        while line := file.readline(MOST_LINE):
            if len(line) == MOST_LINE:
                raise DescriptionError(f"a line of more than {MOST_LINE:,} bytes", path, number)
            yield line
            number += 1


def is_packed(path: Path) -> bool:
    """Whether a file begins as gzip does. Raises OSError."""
    with path.open("rb") as file:
        return file.read(2) == MAGIC

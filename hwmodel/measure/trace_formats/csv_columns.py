"""A CSV file whose first line names its columns, in any order: `time_ns,op,address,size`. `address`
and `op` (R, W, read, write) have to be there; `time_ns` or `time_ps`, and `size` in bytes, may. It
is read alone, and not written."""

from __future__ import annotations

from collections.abc import Iterator

from hwmodel.measure.trace_format import LETTERS, MOST_BYTES, Accesses, Format, Parsed

EXAMPLE = "time_ns,op,address,size"
_OPS = LETTERS | {name: LETTERS[name[:1]] for name in (b"read", b"write", b"READ", b"WRITE")}
_PICOSECONDS = {b"time_ns": 1000, b"time_ps": 1}
_NEEDED = {b"address", b"op"}


def of_header(line: bytes) -> Format | None:
    """The format of a file that begins with this line; None where it names no such columns."""
    names = [name.strip().lower() for name in line.split(b",")]
    times = [name for name in names if name in _PICOSECONDS]
    known = {*_NEEDED, *_PICOSECONDS, b"size"}
    if len(set(names)) < len(names) or not _NEEDED <= set(names) <= known or len(times) > 1:
        return None
    place = {name: i for i, name in enumerate(names)}

    def parse(fields: list[bytes]) -> Parsed:
        if len(fields) != len(names):
            raise ValueError
        size = int(fields[place[b"size"]]) if b"size" in place else 0
        if b"size" in place and not 1 <= size <= MOST_BYTES:
            raise ValueError
        time = 0
        if times:
            time = round(float(fields[place[times[0]]]) * _PICOSECONDS[times[0]])
        kind = _OPS[fields[place[b"op"]].strip()]
        return [int(fields[place[b"address"]], 0)], kind, size, time

    example = line.decode(errors="replace")
    return Format(
        "csv", example, "", parse, _lines, separator=b",", sized=b"size" in place,
        time="picosecond" if times else "", header=line,
    )  # fmt: skip


def _lines(_: Accesses) -> Iterator[str]:
    raise NotImplementedError("a CSV trace is read alone")

"""`r,8000,64,4000`: command, decimal address, bytes, tick of 1 ps, as gem5's
util/encode_packet_trace.py takes it. An access may be several bursts or a part of one."""

from __future__ import annotations

from collections.abc import Iterator

from hwmodel.measure.trace_format import LETTERS, MOST_BYTES, Accesses, Format, Parsed


def _parse(fields: list[bytes]) -> Parsed:
    kind, address, size, tick = fields
    if not 1 <= int(size) <= MOST_BYTES:
        raise ValueError
    return [int(address)], LETTERS[kind], int(size), int(tick)


def _lines(a: Accesses) -> Iterator[str]:
    columns = (x.tolist() for x in (a.write, a.address, a.size, a.picosecond))
    for kind, address, size, tick in zip(*columns, strict=True):
        yield f"{'w' if kind else 'r'},{address},{size},{tick}\n"


FORMAT = Format(
    "gem5", "r,8000,64,4000", "the channel map of the device",
    _parse, _lines, separator=b",", sized=True, time="picosecond",
)  # fmt: skip

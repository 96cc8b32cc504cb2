"""`0x1F40 READ 30`: address, READ or WRITE, cycle (DRAMsim3, src/common.cc)."""

from __future__ import annotations

from collections.abc import Iterator

from hwmodel.kernel.kernel_names import READ, WRITE
from hwmodel.measure.trace_format import Accesses, Format, Parsed

_WORDS = {b"READ": READ, b"read": READ, b"WRITE": WRITE, b"write": WRITE}


def _parse(fields: list[bytes]) -> Parsed:
    address, word, cycle = fields
    return [int(address, 16)], _WORDS[word], 0, int(cycle)


def _lines(a: Accesses) -> Iterator[str]:
    columns = (x.tolist() for x in (a.address, a.write, a.cycle))
    for address, kind, cycle in zip(*columns, strict=True):
        yield f"0x{address:X} {'WRITE' if kind else 'READ'} {cycle}\n"


FORMAT = Format(
    "dramsim3", "0x1F40 READ 30", "writes of less than a burst become whole ones",
    _parse, _lines, time="cycle",
)  # fmt: skip

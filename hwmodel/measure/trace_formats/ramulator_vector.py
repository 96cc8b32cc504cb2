"""`R 0,0,1,2,100,32`: the ReadWriteTrace of Ramulator 2.1 (readwrite_trace.cpp): channel,
pseudo-channel (where there is more than one), rank (where there is more than one, or no
pseudo-channel), stack (where there is more than one), bank group, bank, row, column in bursts."""

from __future__ import annotations

from collections.abc import Iterator

from hwmodel.measure.trace_format import LETTERS, Accesses, Format, Parsed


def _parse(fields: list[bytes]) -> Parsed:
    kind, numbers = fields
    return [int(number) for number in numbers.split(b",")], LETTERS[kind], 0, 0


def _lines(a: Accesses) -> Iterator[str]:
    for vector, kind in zip(a.address.tolist(), a.write.tolist(), strict=True):
        yield f"{'W' if kind else 'R'} {','.join(map(str, vector))}\n"


FORMAT = Format(
    "ramulator-vector", "R 0,0,1,2,100,32", "times; writes of less than a burst become whole ones",
    _parse, _lines, vector=True,
)  # fmt: skip

"""A text format of traces as one file: `load 8000` or `store 8000`, decimal byte addresses."""

from __future__ import annotations

from collections.abc import Iterator

from hwmodel.kernel.kernel_names import READ, WRITE
from hwmodel.measure.trace_format import Accesses, Format, Parsed

_WORDS = {b"load": READ, b"store": WRITE}


def _parse(fields: list[bytes]) -> Parsed:
    word, address = fields
    return [int(address)], _WORDS[word], 0, 0


def _lines(a: Accesses) -> Iterator[str]:
    for address, write in zip(a.address.tolist(), a.write.tolist(), strict=True):
        yield f"{'store' if write else 'load'} {address}\n"


FORMAT = Format("words", "load 8000", "times; parts of a burst become whole ones", _parse, _lines)

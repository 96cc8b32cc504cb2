"""Kernels that a user measured, from a CSV file.

A line a measurement: `kind`, `us` (microseconds), and the columns of its kind; columns that a kind
does not have stay empty. Lines that begin with # are remarks.

    kind,us,format,rows,columns,inner,kv,heads,kv_heads,head_dim,window,block,sequences,tokens
    product,18.6,bf16,1,4096,4096,,,,,,,,
    decode_attention,41.0,,,,,bf16,32,8,128,0,16,8,4096
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hwmodel.description.description import DescriptionError, nearest
from hwmodel.description.files import read_text
from hwmodel.specs.kernel_table import KINDS, Columns, KernelTables

TEXT = ("format", "kv", "state")
"""Columns of names; all others are numbers."""


def read_csv(file: Path) -> KernelTables:
    """The tables of a file. Raises DescriptionError, with the line, where a kind or a column is not
    known, or a number is missing or is none."""
    rows: dict[str, dict[str, list[Any]]] = {}
    lines = enumerate(io.StringIO(read_text(file)), 1)
    first, header, table = _table(file, (one for one in lines if not one[1].startswith("#")))
    known = {"kind", "us", *(name for kind in KINDS.values() for name in kind.exact + kind.axes)}
    for name in header:
        if name not in known:
            raise DescriptionError(f"column {name!r}; {nearest(name, sorted(known))}", file, first)
    for number, cells in table:
        row = dict(zip(header, cells, strict=False))
        kind = row.get("kind", "")
        if kind not in KINDS:
            raise DescriptionError(f"kind {kind!r}; {nearest(kind, list(KINDS))}", file, number)
        into = rows.setdefault(kind, {})
        for name in (*KINDS[kind].exact, *KINDS[kind].axes, "us"):
            into.setdefault(name, []).append(_cell(file, number, kind, name, row.get(name) or ""))
    if not rows:
        raise DescriptionError("has no measured kernels", file)
    return KernelTables(str(file), {kind: _source(columns) for kind, columns in rows.items()})


def _table(
    file: Path, lines: Iterator[tuple[int, str]]
) -> tuple[int, list[str], list[tuple[int, list[str]]]]:
    """(line of the header, its columns, the lines behind it)."""
    numbered = [(n, [cell.strip() for cell in next(csv.reader([line]), [])]) for n, line in lines]
    numbered = [(n, cells) for n, cells in numbered if any(cells)]
    if not numbered:
        raise DescriptionError("is empty; expected a line of columns, kind and us among them", file)
    return *numbered[0], numbered[1:]


def _cell(file: Path, line: int, kind: str, name: str, text: str) -> Any:
    if not text:
        raise DescriptionError(f"{kind}: expected {name}", file, line)
    if name in TEXT:
        return text
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    least = name in ("window", "block", "key_heads")  # which may be none
    if not (number >= 0 if least else number > 0) or number == float("inf"):
        raise DescriptionError(f"{name}: expected a number above 0; got {text!r}", file, line)
    return int(number) if number.is_integer() and name != "us" else number


def _source(columns: Columns) -> Any:
    def read() -> Iterable[Columns]:
        return [columns]

    return read

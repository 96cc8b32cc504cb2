"""What a report says, before it is a page, Markdown or JSON: sections of sentences, tables, charts.

A block is a sentence, a table, a listing, a chart or a section; each renderer knows these and
nothing of runs, so the forms cannot differ in what they say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Literal, TypeGuard

from hwmodel.description.yaml_writer import plain
from sweeps.sections.chart import Chart
from sweeps.sections.formats import NONE

MOST_COLUMNS = 8
"""Columns of a table that stand side by side at most; the others fold."""
_FIGURE = re.compile(r"[-+−±~<>≤≥]{0,2} ?\.?\d|over \d|under \d|grows$|failed$")
"""What a figure begins with, and what stands for one."""


@dataclass(frozen=True)
class Say:
    """A sentence or a few. `lead`: the answer; `verdict`: another finding; `problem`: something is
    missing; `state`: how much of it is there; `foot`: what its numbers are; `note`: small."""

    text: str
    kind: Literal["question", "lead", "verdict", "problem", "state", "foot", "note"] = "note"


@dataclass(frozen=True)
class Grid:
    """A table. `rows` are cells as text; `dim` and `marked` are the rows that stand back and those
    in which something differs."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    dim: frozenset[int] = frozenset()
    marked: frozenset[int] = frozenset()
    text: bool = False
    """Whether the cells are words rather than figures, also where they are numbers."""
    later: frozenset[int] = frozenset()
    """Columns that stand behind the others."""
    terminal: bool = True
    """Whether a terminal has it too."""

    @property
    def sides(self) -> str:
        """`<` for each column of words, `>` for each of figures."""
        return "<" * len(self.columns) if self.text else sides(self.columns, self.rows)

    @property
    def parts(self) -> list[Grid]:
        """The same as tables of `MOST_COLUMNS` at most, each with the first column: the first has
        what is read first, in order, the others what is left."""
        if len(self.columns) <= MOST_COLUMNS and not self.later:
            return [self]
        first = [i for i in range(1, len(self.columns)) if i not in self.later]
        shown, room = first[: MOST_COLUMNS - 1], MOST_COLUMNS - 1
        rest = [i for i in range(1, len(self.columns)) if i not in shown]
        return [self._of(shown), *(self._of(rest[i : i + room]) for i in range(0, len(rest), room))]

    def _of(self, chosen: list[int]) -> Grid:
        columns, *rows = ([row[i] for i in (0, *chosen)] for row in (self.columns, *self.rows))
        return replace(self, columns=columns, rows=rows, later=frozenset())


def sides(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """`<` for the first column and for each in which words are most, `>` for each of figures."""
    every = list(zip_longest(*rows, fillvalue="")) or [()] * len(columns)
    return "".join("<" if i == 0 or _words(cells) else ">" for i, cells in enumerate(every))


def _words(cells: Sequence[str]) -> bool:
    told = [cell for cell in cells if cell not in ("", NONE)]
    return 2 * sum(not _FIGURE.match(cell) for cell in told) > len(told)


@dataclass(frozen=True)
class Listing:
    """Names and their values."""

    title: str
    items: dict[str, str]


@dataclass(frozen=True)
class Section:
    """`folded`: a page shows its title only, until it is opened; `beside`: its blocks stand beside
    one another where there is room; `compared`: what its charts compare, in the order of their
    colours; `rest`: what is left of the section that it stands in, whose title its charts have."""

    title: str
    blocks: list[Block] = field(default_factory=list)
    folded: bool = False
    beside: bool = False
    compared: tuple[str, ...] = ()
    rest: bool = False

    def walk(self) -> Iterator[Block]:
        """Its blocks and those of the sections in it, in order."""
        for block in self.blocks:
            yield block
            if isinstance(block, Section):
                yield from block.walk()


Block = Say | Grid | Listing | Section | Chart


def is_chart(block: Block) -> TypeGuard[Chart]:
    """Whether a block is drawn."""
    return not isinstance(block, (Say, Grid, Listing, Section))


def fitted(blocks: Sequence[Block]) -> Iterator[Block]:
    """Blocks with tables of `MOST_COLUMNS` at most; the columns that are left fold behind each."""
    for block in blocks:
        if not isinstance(block, Grid):
            yield block
            continue
        first, *rest = block.parts
        yield first
        if rest:
            many = sum(len(part.columns) - 1 for part in rest)
            title = f"{many} more column{'s' * (many > 1)}"
            yield Section(title, [replace(part, title="") for part in rest], folded=True)


def as_json(section: Section) -> dict[str, Any]:
    """A section in JSON's types: `title` and `blocks`, each with its `kind`."""
    return {"title": section.title, "blocks": [_block(block) for block in section.blocks]}


def _block(block: Block) -> dict[str, Any]:
    match block:
        case Say():
            return {"kind": block.kind, "text": block.text}
        case Grid():
            return {"kind": "table", "title": block.title, "columns": block.columns,
                    "rows": block.rows}  # fmt: skip
        case Listing():
            return {"kind": "listing", "title": block.title, "items": block.items}
        case Section():
            return {"kind": "section", **as_json(block)}
        case _:
            rows: Any = plain(block.rows())
            return {"kind": "chart", "title": block.title, "note": block.note,
                    "columns": block.columns(), "rows": rows}  # fmt: skip

"""What a report says, before it is a page, Markdown or JSON: sections of sentences, tables, charts.

A block is a sentence, a table, a listing, a chart or a section; each renderer knows these and
nothing of runs, so the forms cannot differ in what they say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeGuard

from hwmodel.description.yaml_writer import plain
from sweeps.report.chart import Chart


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
    """Whether the cells are words rather than figures."""
    sides: str = "<>"
    """On a terminal: `<` or `>` for each column, the last for those after it too."""
    wide: frozenset[int] = frozenset()
    """Columns for which a terminal has no room."""
    terminal: bool = True
    """Whether a terminal has it too."""


@dataclass(frozen=True)
class Listing:
    """Names and their values."""

    title: str
    items: dict[str, str]


@dataclass(frozen=True)
class Section:
    """`folded`: a page shows its title only, until it is opened; `beside`: its blocks stand beside
    one another where there is room; `compared`: what its charts compare, in the order of their
    colours."""

    title: str
    blocks: list[Block] = field(default_factory=list)
    folded: bool = False
    beside: bool = False
    compared: tuple[str, ...] = ()

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

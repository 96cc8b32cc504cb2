"""What runs found, on one page: of each its sentences, then its tables.

    python -m sweeps.report.findings RUN_DIR... > docs/results/findings.md

Every number is computed from the results in the run directories. The contents are those of
`bankwise report`, without its charts, inputs and assumed numbers; charts stay where a section has
no table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from hwmodel.description.description import DescriptionError
from sweeps.analyse.table import Table
from sweeps.report.contents import answer
from sweeps.report.markdown import markdown
from sweeps.report.presenters import presenter_of, read_table, sentences
from sweeps.report.section import Block, Grid, Say, Section
from sweeps.run.store import RunDirectory

AT_FAULT = 2


def findings(directories: Sequence[Path]) -> str:
    """The page, in Markdown. Raises DescriptionError for what is no run directory."""
    tables = [read_table(RunDirectory(directory)) for directory in directories]
    first = [Say(f"{table.name}: {found[0]}", "verdict") for table in tables
             if (found := sentences(table))]  # fmt: skip
    about = Say(
        "Made by `make findings` from run directories. Of each run: the question, what its results "
        "say, and the tables; `bankwise report` adds charts, all inputs and every assumed number."
    )
    short = Section("In short", list(first))
    return markdown([Section("Findings", [about, short, *map(_section, tables)])])


def _section(table: Table) -> Section:
    origin = table.origin()
    which = ("bankwise", "commit", "seeds (and replications)")
    source = "; ".join(f"{key}: {origin[key]}" for key in which)
    shown = _tables(presenter_of(table).sections(table))
    return Section(table.name, [*answer(table), *shown, Say(f"From {source}.")])


def _tables(blocks: Sequence[Block]) -> Iterator[Block]:
    """Blocks without their charts where there are tables beside them, and without sections that
    are empty or folded."""
    plain = any(isinstance(block, Grid) for block in blocks)
    for block in blocks:
        match block:
            case Section():
                if not block.folded and (inner := list(_tables(block.blocks))):
                    yield Section(block.title, inner)
            case Grid() | Say():
                yield block
            case _:
                if not plain:
                    yield block


def main() -> None:
    """Print the page of the run directories named."""
    try:
        print(findings([Path(name) for name in sys.argv[1:]]), end="")
    except DescriptionError as error:
        print(error, file=sys.stderr)
        sys.exit(AT_FAULT)


if __name__ == "__main__":
    main()

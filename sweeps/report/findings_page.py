"""What runs found, on one page: of each its sentences, then its tables.

    python -m sweeps.report.findings_page RUN_DIR... > docs/results/findings.md

Every number is computed from the results in the run directories. The contents are those of
`bankwise report`, without its charts, inputs and assumed numbers; charts stay where a section has
no table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from hwmodel.description.description import DescriptionError
from sweeps.report.contents import Report, read_report
from sweeps.report.markdown import markdown
from sweeps.report.section import Block, Grid, Say, Section

AT_FAULT = 2


def findings(directories: Sequence[Path]) -> str:
    """The page, in Markdown. Raises DescriptionError for what is no run directory."""
    reports = [read_report(directory) for directory in directories]
    first = [Say(f"{each.table.name}: {each.sentences[0]}", "verdict") for each in reports]
    about = Say(
        "Made by `make findings` from run directories. Of each run: the question, what its results "
        "say, and the tables; `bankwise report` adds charts, all inputs and every assumed number."
    )
    short = Section("In short", list(first))
    return markdown([Section("Findings", [about, short, *map(_section, reports)])])


def _section(report: Report) -> Section:
    origin = report.table.origin()
    which = ("bankwise", "commit", "seeds (and replications)")
    source = "; ".join(f"{key}: {origin[key]}" for key in which)
    more = [Say(text, "verdict") for text in report.sentences[1:]]
    shown = _tables(report.tables)
    return Section(report.table.name, [*report.answer, *more, *shown, Say(f"From {source}.")])


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

"""What a notebook, a terminal or a file shows of a result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from hwmodel.description.description import DescriptionError
from sweeps.report.drawing import FORMS as PICTURES
from sweeps.report.markdown import markdown
from sweeps.report.page import fragment, page
from sweeps.run.store import to_csv, write_atomically
from sweeps.sections.section import Grid, Section, is_chart


class Shown(ABC):
    """Something that is shown as sections of a report."""

    @abstractmethod
    def sections(self) -> list[Section]:
        """What is shown."""

    def _repr_html_(self) -> str:
        return fragment(self.sections())

    def _repr_markdown_(self) -> str:
        return markdown(self.sections())

    def __str__(self) -> str:
        return self._repr_markdown_()

    def save(self, file: str | Path) -> Path:
        """Write a page (.html), Markdown (.md), the charts under one another (.svg, .png, .pdf), or
        what they draw (.csv). Raises DescriptionError for other names, and where there is no
        chart."""
        return save(self.sections(), Path(file))


def values(sections: list[Section]) -> str:
    """What the charts draw, as CSV: a row a value; where there are none, the rows of the tables."""
    blocks = [block for section in sections for block in section.walk()]
    drawn = [
        {"chart": chart.title, **dict(zip(chart.columns(), row, strict=True))}
        for chart in blocks if is_chart(chart) for row in chart.rows()
    ]  # fmt: skip
    listed = [
        {"table": grid.title, **dict(zip(grid.columns, row, strict=True))}
        for grid in blocks if isinstance(grid, Grid) for row in grid.rows
    ]  # fmt: skip
    return to_csv(drawn or listed)


FORMS = {".html": page, ".md": markdown, ".csv": values}


def check_name(path: Path) -> None:
    """Raise DescriptionError for a name that neither a page nor a picture has."""
    if path.suffix not in {**FORMS, **PICTURES}:
        known = ", ".join([*PICTURES, *FORMS])
        raise DescriptionError(f"expected a name that ends in one of {known}", path)


def save(sections: list[Section], path: Path) -> Path:
    """Write sections as a page (.html) or Markdown (.md), their charts under one another as a
    picture (.svg, .png, .pdf), or what these draw (.csv). Raises DescriptionError for other names,
    and where there is no chart."""
    check_name(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in FORMS:
        write_atomically(path, FORMS[path.suffix](sections))
        return path
    charts = [block for section in sections for block in section.walk() if is_chart(block)]
    if not charts:
        raise DescriptionError("has no chart to draw; a page ends in .html or .md", path)
    write_atomically(path, PICTURES[path.suffix](charts, ()))
    return path


def write_reports(
    sections: list[Section], html: Path | None, markdown_file: Path | None
) -> list[Path]:
    """Write the page and the Markdown that are wanted; returns them."""
    wanted = ((html, page), (markdown_file, markdown))
    written = []
    for file, form in wanted:
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, form(sections))
            written.append(file)
    return written

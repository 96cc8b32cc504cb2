"""A table of results: rows as plain dicts, which print well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sweeps.report.screen import table_text
from sweeps.report.shown import Shown
from sweeps.run.store import to_csv
from sweeps.sections.section import Grid, Section

Row = dict[str, Any]


class Frame(Shown):
    """`rows` hold the numbers as they are; `grids` are what is shown of them.

    Iterating gives the rows; `frame[0]` is the first of them, `frame["name"]` a column.
    """

    def __init__(self, title: str, rows: list[Row], grids: list[Grid]) -> None:
        self.title = title
        self.rows = rows
        self.grids = grids

    @property
    def columns(self) -> list[str]:
        """The keys of all rows, in order."""
        return list(dict.fromkeys(key for row in self.rows for key in row))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, key: int | str) -> Any:
        """A row, or a column (None where a row lacks it). Raises KeyError, IndexError."""
        if isinstance(key, int):
            return self.rows[key]
        if key not in self.columns:
            raise KeyError(key)
        return [row.get(key) for row in self.rows]

    def to_csv(self) -> str:
        """The rows as CSV."""
        return to_csv(self.rows)

    def to_pandas(self) -> Any:
        """The rows as a pandas data frame. Raises ImportError where pandas is not installed;
        bankwise does not install it."""
        import pandas

        return pandas.DataFrame(self.rows)

    def record(self) -> list[Row]:
        """The rows, as the command's `--json` prints them."""
        return self.rows

    def sections(self) -> list[Section]:
        return [Section(self.title, list(self.grids))]

    def __str__(self) -> str:
        parts = []
        for grid in self.grids:
            title = f"{grid.title}\n" if grid.title else ""
            parts.append(title + table_text(grid.columns, grid.rows))
        return "\n\n".join(parts)

    __repr__ = __str__

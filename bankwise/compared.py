"""What differs between two runs, as Python sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sweeps.report import comparison_page
from sweeps.report.contents import read_report
from sweeps.report.shown import Shown
from sweeps.sections.section import Section


class Compared(Shown):
    """Shows itself in a notebook; `save("page.html")` or `.md` writes it."""

    def __init__(self, first: Path, second: Path) -> None:
        """Raises DescriptionError where a run cannot be read."""
        a, b = (read_report(path).found for path in (first, second))
        self.found = comparison_page.compare(a, b)

    @property
    def sentences(self) -> list[str]:
        """Which inputs and results differ, and how certainly."""
        return list(comparison_page.sentences(self.found))

    def record(self) -> dict[str, Any]:
        """In JSON's types, as `bankwise compare --json` has it."""
        return comparison_page.record(self.found)

    def sections(self) -> list[Section]:
        return [comparison_page.section(self.found)]

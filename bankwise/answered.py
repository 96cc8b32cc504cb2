"""The answer to a question, as Python sees it."""

from __future__ import annotations

from typing import Any

from sweeps.report.shown import Shown
from sweeps.sections.section import Section


class Answered(Shown):
    """Shows itself in a notebook; `save("page.html")` or `.md` writes it."""

    def __init__(self, shown: list[Section], record: Any) -> None:
        self._shown, self._record = shown, record

    def record(self) -> Any:
        """In JSON's types, as the command's `--json` prints it."""
        return self._record

    def sections(self) -> list[Section]:
        return self._shown

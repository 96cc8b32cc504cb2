"""What a notebook, a terminal or a file shows of a result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

from hwmodel.description.description import DescriptionError
from sweeps.report.markdown import markdown
from sweeps.report.page import fragment, page
from sweeps.run.store import write_atomically
from sweeps.sections.section import Section


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
        """Write it as a page (.html) or Markdown (.md). Raises DescriptionError for others."""
        return save(self.sections(), Path(file))


def save(sections: list[Section], path: Path, others: Iterable[str] = ()) -> Path:
    """Write sections as a page (.html) or Markdown (.md). others: what else would have been
    written. Raises DescriptionError for other names."""
    forms = {".html": page, ".md": markdown}
    if path.suffix not in forms:
        known = ", ".join([*others, *forms])
        raise DescriptionError(f"expected a name that ends in one of {known}", path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, forms[path.suffix](sections))
    return path

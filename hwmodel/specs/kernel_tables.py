"""The measured kernels that a device names (`kernels.tables`): a shipped package's, or a file."""

from __future__ import annotations

from pathlib import Path

from hwmodel.description.description import DescriptionError
from hwmodel.description.files import by_contents
from hwmodel.specs.kernel_table import KernelTables
from hwmodel.specs.kernel_table_csv import read_csv
from hwmodel.specs.kernel_table_package import read_package


def is_file(name: str) -> bool:
    """Whether it is a table of the user's own."""
    return name.endswith(".csv") or "/" in name


@by_contents
def kernel_tables(name: str, system: str | None) -> KernelTables:
    """The tables of this name on this card. Raises DescriptionError where there are none."""
    if not is_file(name):
        return read_package(name, system)
    if not Path(name).is_file():
        raise DescriptionError("no such file", name)
    return read_csv(Path(name))

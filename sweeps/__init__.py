"""The experiments floor: sweeps, the result store, reports, the command line - and the Python
interface (`docs/python.md`): `from sweeps import run; run("quickstart")`.

Importing it loads nothing heavy; what is asked for is loaded then.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hwmodel.description.description import DescriptionError
    from sweeps.cli.api import bandwidth, compare, report, run, study
    from sweeps.cli.new_device import new_device

__all__ = ["DescriptionError", "bandwidth", "compare", "new_device", "report", "run", "study"]

_ELSEWHERE = {
    "DescriptionError": "hwmodel.description.description", "new_device": "sweeps.cli.new_device",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sweeps' has no attribute {name!r}")
    module = _ELSEWHERE.get(name, "sweeps.cli.api")
    return getattr(import_module(module), name)

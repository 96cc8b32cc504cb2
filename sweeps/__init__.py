"""The experiments floor: sweeps, the result store, reports, the command line - and the Python
interface (`docs/python.md`): `from sweeps import run; run("quickstart")`.

Importing it loads nothing heavy; what is asked for is loaded then.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeps.api import bandwidth, compare, report, run, study

__all__ = ["bandwidth", "compare", "report", "run", "study"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("sweeps.api"), name)
    raise AttributeError(f"module 'sweeps' has no attribute {name!r}")

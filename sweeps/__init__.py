"""The experiments floor: sweeps, the result store, reports, the command line. From Python it is
`bankwise` that one imports (`docs/python.md`)."""

from __future__ import annotations

_MOVED = {"DescriptionError", "bandwidth", "compare", "new_device", "report", "run", "study"}
"""Names that stood here; `run`, `study` and `report` are rooms now."""


def __getattr__(name: str) -> object:
    # an AttributeError would lose its text in `from sweeps import run`
    if name in _MOVED:
        raise ImportError(f"sweeps.{name} is now bankwise.{name}: from bankwise import {name}")
    raise AttributeError(f"module 'sweeps' has no attribute {name!r}")

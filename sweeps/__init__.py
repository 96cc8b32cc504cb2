"""The experiments floor: sweeps, the result store, reports, the command line. From Python it is
`bankwise` that one imports (`docs/reading-results.md`)."""

from __future__ import annotations

_MOVED = {
    **{name: name for name in ("DescriptionError", "compare", "new_device", "report", "run")},
    "bandwidth": "memory", "study": "run",
}  # fmt: skip
"""Names that stood here -> what they are in `bankwise`; `run`, `study` and `report` are rooms."""


def __getattr__(name: str) -> object:
    # an AttributeError would lose its text in `from sweeps import run`
    if name in _MOVED:
        now = _MOVED[name]
        raise ImportError(f"sweeps.{name} is now bankwise.{now}: from bankwise import {now}")
    raise AttributeError(f"module 'sweeps' has no attribute {name!r}")

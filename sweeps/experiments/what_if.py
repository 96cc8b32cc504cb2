"""What-ifs: changes of a sweep's base, each alone, and some of them together.

`changes` names them, each with its overrides by dotted path; `together` names combinations of those
that go together. Each is crossed with the axes, beside the base as it is described.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hwmodel.description.description import Document, nearest
from sweeps.experiments.variant import AS_DESCRIBED, Change, Variant

CHANGE = "change"
"""The key of a result's overrides that names its change."""
Changes = Mapping[str, Mapping[str, Any]]


def refuse_inconsistent(
    changes: Changes, together: Mapping[str, list[str]], axes: Iterable[str]
) -> None:
    """Raise ValueError, the place at the head of its message, for changes that do not fit."""
    taken = [*axes]
    for name, overrides in changes.items():
        if name == AS_DESCRIBED:
            raise ValueError(
                f"changes: {name!r}: this is what the base is called; take another name"
            )
        if not overrides:
            raise ValueError(f"changes: {name!r}: expected at least one path and its value")
        for path in overrides:
            if path in taken:
                raise ValueError(f"changes: {name!r}: {path} is an axis already")
    for name, parts in together.items():
        if name in changes or name == AS_DESCRIBED:
            raise ValueError(f"together: {name!r}: the name is taken")
        if len(parts) < 2:
            raise ValueError(f"together: {name!r}: expected two changes or more")
        for part in parts:
            if part not in changes:
                hint = nearest(part, list(changes))
                raise ValueError(f"together: {name!r}: no change {part!r}; {hint}")
        paths = [path for part in parts for path in changes[part]]
        if twice := next((path for path in paths if paths.count(path) > 1), None):
            raise ValueError(
                f"together: {name!r}: {twice} is changed twice; these do not go together"
            )


def variants(
    changes: Changes, together: Mapping[str, list[str]], document: Document
) -> list[Variant]:
    """The base, each change alone, and each combination; one without a name where none is asked."""
    if not changes:
        return [Variant({}, [])]

    def of(name: str) -> list[Change]:
        return [
            (path, value, document.mark(("changes", name, path)))
            for path, value in changes[name].items()
        ]

    return [
        Variant({CHANGE: AS_DESCRIBED}, []),
        *(Variant({CHANGE: name}, of(name)) for name in changes),
        *(
            Variant({CHANGE: name}, [change for part in parts for change in of(part)])
            for name, parts in together.items()
        ),
    ]

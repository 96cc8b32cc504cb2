"""Colours: a policy has one, in every chart and every report.

All are legible on white and on a dark page (contrast 3 or more), so a theme changes text alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from policies.allocators.registry import POLICIES

COLOURS = (
    "#2f7ed8", "#d9650b", "#14915f", "#9b5fc0", "#9a7400", "#7a838f", "#b5544a", "#c9438f",
    "#138fa8", "#6f8c1f",
)  # fmt: skip
"""Of what is compared; registered policies have the first, in the registry's order."""
PARTS = (
    "#47719c", "#b0783a", "#5f8a4f", "#8a6aa0", "#a05b55", "#4f8a8a", "#8c7a4a", "#707a86",
)  # fmt: skip
"""Of the parts of a whole, muted."""
PLAIN, GAIN, LOSS = "#5f7f9e", "#5f7f9e", "#c9543f"
"""Bars of what is not compared, and changes for the better and the worse."""


def colours(compared: Sequence[str], others: Sequence[str] = ()) -> dict[str, str]:
    """A colour by name: of what a run compares, then of other series of a chart.

    A registered policy has its own, and so has what begins with a name that is compared ("paged
    wins"); other names take what is left, and begin again at the end."""
    own = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(POLICIES)}
    found = _filled({name: own[name] for name in compared if name in own}, compared)
    for name in others:
        near = max((n for n in found if name.startswith(f"{n} ")), key=len, default=name)
        if near in found or near in own:
            found.setdefault(name, found.get(near) or own[near])
    return _filled(found, others)


def _filled(found: dict[str, str], names: Sequence[str]) -> dict[str, str]:
    """With colours for the names that have none."""
    free = [colour for colour in COLOURS if colour not in found.values()] or list(COLOURS)
    rest = [name for name in dict.fromkeys(names) if name not in found]
    return found | {name: free[i % len(free)] for i, name in enumerate(rest)}

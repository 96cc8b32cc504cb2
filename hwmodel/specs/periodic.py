"""Commands of kind PERIODIC: how many find a lane of the kernel, and whether they leave time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from hwmodel.specs.commands import COMMANDS, PERIODIC_COMMANDS
from hwmodel.specs.memory_fields import Command


def periodic_lanes(commands: Mapping[str, Command], unissued: set[str]) -> dict[str, str]:
    """Each command of kind PERIODIC -> the command never issued whose lane of the kernel it takes.
    Raises ValueError where there are more of them."""
    free = [name for name in COMMANDS if name in unissued]
    described = [kind for kind in PERIODIC_COMMANDS if kind in commands]
    if len(described) > len(free):
        called = commands[described[len(free)]].name
        raise ValueError(
            f"commands.{called}: {len(free)} commands of kind PERIODIC fit beside those that this"
            f" controller issues; there are {len(described)}"
        )
    return dict(zip(described, free, strict=False))


def periodic_fit(takes: Mapping[str, tuple[int, int]]) -> None:
    """Half of the time must be left to others by these commands, name -> (ticks that one takes,
    ticks from it to the next). Raises ValueError."""
    left = Fraction(1, 2)
    for name, (ticks, every) in takes.items():
        path = f"commands.{name}.every"
        if left <= 0:
            raise ValueError(f"{path}: those before it take half of the time")
        if every < (least := math.ceil(ticks / left)):
            beside = "twice" if left == Fraction(1, 2) else "beside those before it, twice"
            raise ValueError(
                f"{path}: expected at least {least} ticks, {beside} what closing the banks and the"
                " command take"
            )
        left -= Fraction(ticks, every)

"""Commands of kind PERIODIC: how many find a lane of the kernel, and whether they leave time."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from hwmodel.specs.commands import COMMANDS, PERIODIC_COMMANDS

if TYPE_CHECKING:
    from hwmodel.specs.memory_spec import MemorySpec


def unissued(memory: MemorySpec) -> set[str]:
    """Commands that the controller never issues, described or not: nothing waits for them."""
    c, masked, rests = memory.controller, memory.masked_writes, memory.alerts is not None
    rests |= c.refresh == "all_bank"
    idle = {
        "ACT": memory.activate.steps == 2,
        "ACT1": memory.activate.steps == 1,
        "ACT2": memory.activate.steps == 1,
        "RDA": c.page_policy != "closed",
        "WRA": c.page_policy != "closed",
        "MWR": not masked,
        "MWRA": c.page_policy != "closed" or not masked,
        "PREA": not rests and not memory.periodic_closed,
        "REFPB": c.refresh != "per_bank" and not memory.managed,
        "REFAB": not rests,
        "CAS": memory.sync is None or memory.sync.always_on,
        "RFM": not memory.managed,
        "RFMAB": not memory.alerts,
    }
    return {name for name, never in idle.items() if never}


def periodic_lanes(memory: MemorySpec) -> dict[str, str]:
    """Each command of kind PERIODIC -> the command never issued whose lane of the kernel it takes.
    Raises ValueError where there are more of them."""
    never = unissued(memory)
    free = [name for name in COMMANDS if name in never]
    described = [kind for kind in PERIODIC_COMMANDS if kind in memory.commands]
    if len(described) > len(free):
        called = memory.command_name(described[len(free)])
        raise ValueError(
            f"commands.{called}: {len(free)} commands of kind PERIODIC fit beside those that this"
            f" controller issues; there are {len(described)}"
        )
    return dict(zip(described, free, strict=False))


def periodic_fit(memory: MemorySpec) -> None:
    """Half of the time must be left to other commands. Raises ValueError."""
    left = Fraction(1, 2)
    for kind, every in memory.periodic.items():
        command = memory.commands[kind]
        rows = [row for row in memory.constraints if kind in row.after]
        takes = max((memory.ticks(row.delay) for row in rows), default=0)
        takes += memory.tick_clock.ticks(Fraction(str(command.slots)))
        if command.banks == "closed":
            takes += memory.closing_ticks()
        path = f"commands.{memory.command_name(kind)}.every"
        if left <= 0:
            raise ValueError(f"{path}: those before it take half of the time, or more")
        if every < (least := math.ceil(takes / left)):
            beside = "twice" if left == Fraction(1, 2) else "beside those before it, twice"
            raise ValueError(
                f"{path}: expected at least {least} ticks, {beside} what closing the banks and the"
                " command take"
            )
        left -= Fraction(takes, every)

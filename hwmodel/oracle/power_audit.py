"""Power states of a command log, where entries and exits are commands: is each entered when all is
over, kept long enough, and left before anything else comes? A log's times are ticks of a channel.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hwmodel.oracle.command_log import CommandLog
from hwmodel.oracle.refresh_audit import Finding
from hwmodel.specs.commands import COLUMN_COMMANDS, COMMANDS, LEVELS, WRITE_COMMANDS
from hwmodel.specs.memory_spec import MemorySpec, row_delay

BoolArray = NDArray[np.bool_]
_NAMES = {"PDE": ("power_down", "PDX"), "SRE": ("self_refresh", "SRX")}
_ACCESSES = ("ACT", "ACT1", "ACT2", "CAS", *COLUMN_COMMANDS)


def _lasts(memory: MemorySpec, name: str) -> int:
    """Ticks from a command until what it does is over."""
    if name in ("REFPB", "REFAB", "RFM", "RFMAB", *memory.periodic):
        return row_delay(memory, name, memory.activate_command, LEVELS)
    if name in COLUMN_COMMANDS:
        data = memory.data.write if name in WRITE_COMMANDS else memory.data.read
        return memory.ticks(data.latency) + max(memory.ticks(end) for _, end in data.segments)
    return memory.tick_clock.ticks(Fraction(str(memory.commands[name].slots)))


def dies_own(log: CommandLog) -> BoolArray:
    """The commands between SRE and SRX, (n,): they stand for the die's own and take no bus."""
    enters, leaves = (log.command == COMMANDS.index(name) for name in ("SRE", "SRX"))
    inside: BoolArray = np.cumsum(enters) > np.cumsum(leaves)
    return inside & ~enters


def power_states(memory: MemorySpec, log: CommandLog) -> Iterator[Finding]:
    """Rules that are broken, with the places in the log."""
    states = memory.power_states
    entries = [name for name in _NAMES if name in memory.commands]
    if states is None or not entries:
        return
    found: dict[str, list[int]] = {}
    lasts = {name: _lasts(memory, name) for name in memory.commands}
    exits = {exit_: (entry, state) for entry, (state, exit_) in _NAMES.items()}
    takes = {state: memory.ticks(getattr(states, f"{state}_exit")) for state, _ in _NAMES.values()}
    if memory.controller.deep_sleep_after is not None and states.deep_sleep_exit is not None:
        # a log does not say which of the two SRX leaves
        takes["self_refresh"] = min(takes["self_refresh"], memory.ticks(states.deep_sleep_exit))
    inside, since, over, free = "", 0, 0, 0
    for at, (tick, code) in enumerate(zip(log.tick.tolist(), log.command.tolist(), strict=True)):
        name, rule = COMMANDS[code], ""
        if name in exits:
            entry, state = exits[name]
            if inside != entry:
                rule = f"power: {name} without its {entry}"
            elif tick - since < memory.ticks(getattr(states, f"{state}_stay")):
                rule = f"power: {name} before power_states.{state}_stay is over"
            inside, free = "", tick + takes[state]
        elif inside == "PDE" or (inside and name in _ACCESSES):
            rule = f"power: a command after {inside}, before its exit"
        elif tick < free:
            rule = "power: a command before the exit is over"
        elif name in _NAMES and tick < over:
            rule = f"power: {name} before all that was issued is over"
        if name in _NAMES:
            inside, since = name, tick
        elif not inside:
            over = max(over, tick + lasts[name])
        if rule:
            found.setdefault(rule, []).append(at)
    for rule, places in found.items():
        yield np.array(places, np.int64), rule

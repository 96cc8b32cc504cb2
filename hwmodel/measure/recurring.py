"""What comes at intervals, as short simulations have to meet it: at its rate.

Refreshes, and commands at intervals such as ZQ calibration, begin an interval after tick 0. A
window or stream that is shorter than their interval would never see one, and a longer one would see
them by whole numbers. Windows are therefore lengthened to hold a whole number of what matters to
them, and short streams are simulated at several places of the interval, evenly apart.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernel.memory import apart_ticks
from hwmodel.specs.memory_spec import MemorySpec, row_delay

MATTERS = 0.005
"""Share of its time by which a simulation may be wrong as it meets an event more or less than their
rate says (assumed: a quarter of the 2 % that a sampled efficiency may be off)."""
INTERVALS = 4
"""Intervals that the simulations of a short stream pass through together (assumed): they meet what
comes in them to half an event, an eighth of it."""
MOST_TIMES = 16
"""Simulations of a short stream at most (assumed)."""
_GOLDEN, _SILVER = (math.sqrt(5) - 1) / 2, math.sqrt(2) - 1
"""Steps by which points of a line lie evenly, however many there are."""


class Recurring(NamedTuple):
    """What comes every `every_ns` and then takes as much of a channel as `takes_ns` of all of
    it."""

    every_ns: float
    takes_ns: float
    turns: int = 1
    """Places that it comes to in turn."""


def recurring(memory: MemorySpec) -> list[Recurring]:
    """Refreshes, and commands at intervals, of one rank. A refresh of some of its banks takes their
    share."""
    tick_ns, found = float(memory.tick_clock.ns_of_ticks(1)), []
    first, scopes = memory.activate_command, ("bank", "rank", "pseudochannel", "channel")
    if memory.refresh_ticks():
        kind = "REFPB" if memory.controller.refresh == "per_bank" else "REFAB"
        turns = memory.refreshes_per_round
        every, takes = memory.refresh_ticks() / turns, row_delay(memory, kind, first, scopes)
        found.append(Recurring(every * tick_ns, takes / turns * tick_ns, turns))
    for kind, ticks in memory.periodic.items():
        takes = row_delay(memory, kind, first, scopes)
        found.append(Recurring(ticks * tick_ns, takes * tick_ns))
    return found


def matters(memory: MemorySpec, lasts_ns: float) -> Recurring | None:
    """Of what takes more than MATTERS of the time, the rarest that a simulation of `lasts_ns` would
    misjudge by more than that where it met one more or less; None: nothing."""
    limit_ns = MATTERS * lasts_ns
    some = [
        each
        for each in recurring(memory)
        if each.takes_ns > limit_ns and each.takes_ns > MATTERS * each.every_ns
    ]
    return max(some, default=None)


def window_ns(memory: MemorySpec, least_ns: float) -> float:
    """How long a window of a stream is, at least `least_ns`: a whole number of intervals of what
    matters to it."""
    event = matters(memory, least_ns)
    if event is None:
        return least_ns
    return math.ceil(least_ns / event.every_ns - 1e-9) * event.every_ns


def passes(
    memory: MemorySpec, lasts_ns: float, turn: int = 0, times: int | None = None
) -> list[float]:
    """How many ns things have come at intervals already, each time that a stream of about
    `lasts_ns` is simulated: the mean of its times is what it takes at any moment. turn: which of
    several such means this is; their moments lie between each other. times: as many simulations;
    None: as its length asks for. Where refreshes may be postponed, as many intervals have passed as
    may be owed (`Owed`)."""
    interval_ns = float(memory.tick_clock.ns_of_ticks(memory.refresh_ticks()))
    postponed = memory.controller.refresh_postpone
    owed_ns = (postponed + INTERVALS) * interval_ns if postponed else 0.0
    event = matters(memory, lasts_ns)
    if event is None:
        return [owed_ns] * (times or 1)
    if times is None:
        times = min(math.ceil(INTERVALS * event.every_ns / lasts_ns), MOST_TIMES)
    begin, found = (0.5 + _GOLDEN * turn) % 1.0, []
    for i in range(times):
        place = int(event.turns * ((0.5 + _SILVER * (turn * times + i)) % 1.0))
        found.append(owed_ns + event.every_ns * (place + (i + begin) / times))
    return found


class Owed:
    """What ranks owe as a simulation of several begins, where refreshes may be postponed: what they
    owed as the one before it ended. Else a short stream would postpone all of its own and pay for
    none, or, where much is owed as it begins, issue that while no request has come yet.

    Those of whole streams and of windows of them follow each other by themselves: a window begins
    in the middle of a stream.
    """

    def __init__(self, memory: MemorySpec, lead_ns: float) -> None:
        """lead_ns: until a simulation's first request is at the memory."""
        self._memory, self._postpones = memory, memory.controller.refresh_postpone > 0
        self._owed: dict[bool, NDArray[np.int64]] = {}
        self._early = 0
        """Refreshes that a window issues of its own before that, as nothing waits yet."""
        if self._postpones and memory.refresh_ticks():
            apart_ns = apart_ticks(memory) * float(memory.tick_clock.ns_of_ticks(1))
            self._early = 1 + int(lead_ns / apart_ns)

    def settles(self, whole: bool, lasts_ns: float) -> int:
        """How many simulations of a stream, which lasts so long, come before the first that counts:
        as many as may change by what is owed, but for less than MATTERS of their time. The
        first window begins as where banks are always busy; the first whole stream owes nothing, as
        no more falls due in the following ones than in their time, while owing less takes longer.
        """
        if not self._postpones or whole in self._owed:
            return 0
        most = self._memory.controller.refresh_postpone
        round_ns = float(self._memory.tick_clock.ns_of_ticks(self._memory.refresh_ticks()))
        takes_ns = sum(each.takes_ns * each.turns for each in recurring(self._memory)[:1])
        if most * takes_ns <= MATTERS * lasts_ns:
            return 0
        return min(math.ceil(most * round_ns / lasts_ns), MOST_TIMES)

    def at_begin(self, whole: bool) -> dict[str, Any]:
        """How a simulation begins, as arguments of `simulate_system`."""
        if not self._postpones or (whole not in self._owed and not whole):
            return {}
        owed = self._owed.get(whole, np.zeros((1, 1), np.int64))
        return {"owed": owed if whole else owed + self._early}

    def note(self, whole: bool, result: Any) -> None:
        """A simulation has ended."""
        if self._postpones:
            self._owed[whole] = np.array(result.owed, np.int64)

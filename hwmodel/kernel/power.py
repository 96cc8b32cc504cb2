"""Kernel: a channel that nothing waits for powers down (docs/rfm-power.md)."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from hwmodel.kernel.jit import inlined, rare
from hwmodel.kernel.kernel_names import MWRA, RD, REFAB, REFPB, Record

ASLEEP = (
    "power_down_precharged", "power_down_active", "self_refresh_precharged", "self_refresh_active",
)  # fmt: skip
"""States of a rank asleep: the columns of `asleep`. The last: its rows were left open."""


@inlined
def nothing_waits(c: Record, s: Record) -> bool:
    """Whether no request waits."""
    waiting = 0
    for pc in range(c.pcs):
        waiting += s.waiting[pc, 0] + s.waiting[pc, 1] + s.active_count[pc]
    return waiting == 0


@inlined
def _self_refresh_from(c: Record, s: Record) -> int:
    """Tick from which the channel is in self-refresh if nothing comes."""
    return s.served + c.self_refresh_after


@inlined
def _book(c: Record, s: Record, until: int) -> None:
    """Book the time asleep up to a tick; since the last one no row has opened or closed."""
    deep = _self_refresh_from(c, s)
    light = min(until, deep) - max(s.quiet + c.power_down_after, s.booked)
    heavy = until - max(deep, s.booked)
    for rank in range(c.ranks):
        opened = 1 if s.rank_open[rank] > 0 else 0
        s.asleep[rank, opened] += max(0, light)
        s.asleep[rank, 2 + opened] += max(0, heavy)
    s.booked = max(s.booked, until)


@rare
def wake(c: Record, s: Record, arrival: int) -> None:
    """A request arrives: if the channel sleeps, no command is legal before it has left that."""
    if not nothing_waits(c, s):
        return
    deep = _self_refresh_from(c, s)
    if arrival <= min(s.quiet + c.power_down_after, deep):
        return
    _book(c, s, arrival)
    awake = arrival + (c.self_refresh_exit if arrival > deep else c.power_down_exit)
    for bus in range(s.bus_free.shape[0]):
        s.bus_free[bus] = max(s.bus_free[bus], awake)
    s.quiet, s.served = awake, awake


@rare
def stirred(c: Record, s: Record, command: int, tick: int) -> None:
    """A command is issued: without a request it ends power-down, for which the exit began in time;
    in self-refresh it stands for what the die does by itself."""
    if nothing_waits(c, s):
        if tick > _self_refresh_from(c, s):
            _book(c, s, tick)
            if command == REFPB or command == REFAB:
                s.refreshes_asleep += 1
            return
        _book(c, s, tick - c.power_down_exit)
    s.quiet = max(s.quiet, tick + c.lasts[command])
    if command >= RD and command <= MWRA:
        s.served = max(s.served, tick + c.lasts[command])


def asleep_ns(states: NDArray[Any], tick_ns: float) -> dict[str, float]:
    """Time asleep by state, ns summed over the ranks of all pseudo-channels and channels; and
    `refreshes`, the commands that self-refresh made needless."""
    ticks = states["asleep"].sum(axis=(0, 1)).tolist()
    found = {name: value * tick_ns for name, value in zip(ASLEEP, ticks, strict=True)}
    return {**found, "refreshes": float(states["refreshes_asleep"].sum())}

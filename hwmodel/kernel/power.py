"""Kernel: a channel that nothing waits for powers down (docs/rfm-power.md)."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from hwmodel.kernel.channel_state import MOST_POWER_EVENTS
from hwmodel.kernel.jit import called, inlined
from hwmodel.kernel.kernel_names import MWRA, PDE, PDX, RD, REFAB, REFPB, SRE, SRX, Record
from hwmodel.kernel.limits import NEVER

ASLEEP = (
    "power_down_precharged", "power_down_active", "self_refresh_precharged", "self_refresh_active",
    "deep_sleep_precharged", "deep_sleep_active",
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
def _note(s: Record, tick: int, command: int) -> None:
    """An entry or an exit takes its slots of a bus that is idle."""
    s.commands[command] += 1
    if s.power_events < MOST_POWER_EVENTS:
        s.power_event[s.power_events, 0], s.power_event[s.power_events, 1] = tick, command
        s.power_events += 1


@inlined
def _self_refresh_from(c: Record, s: Record) -> int:
    """Tick from which the channel is in self-refresh if nothing comes."""
    begin = s.data_over + c.self_refresh_after
    return max(begin, s.commands_over) if c.self_refresh_named == 1 else begin


@inlined
def _power_down(c: Record, s: Record) -> tuple[int, int]:
    """(begin, end) of power-down if nothing comes; where the end is first, there is none. It is
    left for SRE, and not entered for less than it lasts."""
    begin, end = s.commands_over + c.power_down_after, _self_refresh_from(c, s)
    if c.self_refresh_named == 1:
        end -= c.power_down_exit
    return begin, (end if begin + c.power_down_stay <= end else NEVER)


@inlined
def _book(c: Record, s: Record, until: int) -> None:
    """Book the time asleep up to a tick; since the last one no row has opened or closed."""
    begin, end = _power_down(c, s)
    own, deep = _self_refresh_from(c, s), s.data_over + c.deep_sleep_after
    light = min(until, end) - max(begin, s.sleep_booked)
    heavy = min(until, max(own, deep)) - max(own, s.sleep_booked)
    deepest = until - max(own, deep, s.sleep_booked)
    for rank in range(c.ranks):
        opened = 1 if s.rank_open[rank] > 0 else 0
        s.asleep[rank, opened] += max(0, light)
        s.asleep[rank, 2 + opened] += max(0, heavy)
        s.asleep[rank, 4 + opened] += max(0, deepest)
    s.sleep_booked = max(s.sleep_booked, until)


@inlined
def _enter_self_refresh(c: Record, s: Record) -> None:
    """Note what led to self-refresh, once."""
    if s.refreshing_itself == 0:
        begin, end = _power_down(c, s)
        if c.power_down_named == 1 and end > NEVER:
            _note(s, begin, PDE)
            _note(s, end, PDX)
        if c.self_refresh_named == 1:
            _note(s, _self_refresh_from(c, s), SRE)
        s.refreshing_itself = 1


@called
def wake(c: Record, s: Record, arrival: int) -> None:
    """A request arrives: if the channel sleeps, no command is legal before it has left that."""
    if not nothing_waits(c, s):
        return
    begin, end = _power_down(c, s)
    own = _self_refresh_from(c, s)
    if arrival > own:
        _enter_self_refresh(c, s)
        leave, takes = max(arrival, own + c.self_refresh_stay), c.self_refresh_exit
        deep = max(own, s.data_over + c.deep_sleep_after)
        if arrival > deep:
            leave, takes = max(leave, deep + c.deep_sleep_stay), c.deep_sleep_exit
        if c.self_refresh_named == 1:
            _note(s, leave, SRX)
        s.refreshing_itself = 0
    elif begin < arrival and end > NEVER:
        leave, takes = min(max(arrival, begin + c.power_down_stay), end), c.power_down_exit
        if c.power_down_named == 1:
            _note(s, begin, PDE)
            _note(s, leave, PDX)
    else:
        return
    _book(c, s, leave)
    awake = leave + takes
    for bus in range(s.bus_free.shape[0]):
        s.bus_free[bus] = max(s.bus_free[bus], awake)
    s.commands_over, s.data_over = awake, awake


@called
def stirred(c: Record, s: Record, command: int, tick: int) -> None:
    """A command is issued: without a request it ends power-down, for which the exit began in time;
    in self-refresh it stands for what the die does by itself."""
    if nothing_waits(c, s):
        if tick > _self_refresh_from(c, s):
            _enter_self_refresh(c, s)
            _book(c, s, tick)
            if command == REFPB or command == REFAB:
                s.refreshes_asleep += 1
            return
        begin, end = _power_down(c, s)
        leave = tick - c.power_down_exit
        if end > NEVER and leave >= begin + c.power_down_stay:
            _book(c, s, leave)
            if c.power_down_named == 1:
                _note(s, begin, PDE)
                _note(s, leave, PDX)
    s.commands_over = max(s.commands_over, tick + c.lasts[command])
    if command >= RD and command <= MWRA:
        s.data_over = max(s.data_over, tick + c.lasts[command])


def asleep_ns(states: NDArray[Any], tick_ns: float) -> dict[str, float]:
    """Time asleep by state, ns summed over the ranks of all pseudo-channels and channels; and
    `refreshes`, the commands that self-refresh made needless."""
    ticks = states["asleep"].sum(axis=(0, 1)).tolist()
    found = {name: value * tick_ns for name, value in zip(ASLEEP, ticks, strict=True)}
    return {**found, "refreshes": float(states["refreshes_asleep"].sum())}

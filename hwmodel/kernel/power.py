"""Kernel: a channel that nothing waits for powers down (rules.md)."""

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
def nothing_waits(memory: Record, state: Record) -> bool:
    """Whether no request waits."""
    waiting = 0
    for pc in range(memory.pcs):
        waiting += state.waiting[pc, 0] + state.waiting[pc, 1] + state.active_count[pc]
    return waiting == 0


@inlined
def _note(state: Record, tick: int, command: int) -> None:
    """An entry or an exit takes its slots of a bus that is idle."""
    state.commands[command] += 1
    if state.power_events < MOST_POWER_EVENTS:
        state.power_event[state.power_events, 0], state.power_event[state.power_events, 1] = (
            tick,
            command,
        )
        state.power_events += 1


@inlined
def _self_refresh_from(memory: Record, state: Record) -> int:
    """Tick from which the channel is in self-refresh if nothing comes."""
    begin = state.data_over + memory.self_refresh_after
    return max(begin, state.commands_over) if memory.self_refresh_named == 1 else begin


@inlined
def _power_down(memory: Record, state: Record) -> tuple[int, int]:
    """(begin, end) of power-down if nothing comes; where the end is first, there is none. It is
    left for SRE, and not entered for less than it lasts."""
    begin, end = state.commands_over + memory.power_down_after, _self_refresh_from(memory, state)
    if memory.self_refresh_named == 1:
        end -= memory.power_down_exit
    return begin, (end if begin + memory.power_down_stay <= end else NEVER)


@inlined
def _book(memory: Record, state: Record, until: int) -> None:
    """Book the time asleep up to a tick; since the last one no row has opened or closed."""
    begin, end = _power_down(memory, state)
    own, deep = _self_refresh_from(memory, state), state.data_over + memory.deep_sleep_after
    light = min(until, end) - max(begin, state.sleep_booked)
    heavy = min(until, max(own, deep)) - max(own, state.sleep_booked)
    deepest = until - max(own, deep, state.sleep_booked)
    for rank in range(memory.ranks):
        opened = 1 if state.rank_open[rank] > 0 else 0
        state.asleep[rank, opened] += max(0, light)
        state.asleep[rank, 2 + opened] += max(0, heavy)
        state.asleep[rank, 4 + opened] += max(0, deepest)
    state.sleep_booked = max(state.sleep_booked, until)


@inlined
def _enter_self_refresh(memory: Record, state: Record) -> None:
    """Note what led to self-refresh, once."""
    if state.refreshing_itself == 0:
        begin, end = _power_down(memory, state)
        if memory.power_down_named == 1 and end > NEVER:
            _note(state, begin, PDE)
            _note(state, end, PDX)
        if memory.self_refresh_named == 1:
            _note(state, _self_refresh_from(memory, state), SRE)
        state.refreshing_itself = 1


@called
def wake(memory: Record, state: Record, arrival: int) -> None:
    """A request arrives: if the channel sleeps, no command is legal before it has left that."""
    if not nothing_waits(memory, state):
        return
    begin, end = _power_down(memory, state)
    own = _self_refresh_from(memory, state)
    if arrival > own:
        _enter_self_refresh(memory, state)
        leave, takes = max(arrival, own + memory.self_refresh_stay), memory.self_refresh_exit
        deep = max(own, state.data_over + memory.deep_sleep_after)
        if arrival > deep:
            leave, takes = max(leave, deep + memory.deep_sleep_stay), memory.deep_sleep_exit
        if memory.self_refresh_named == 1:
            _note(state, leave, SRX)
        state.refreshing_itself = 0
    elif begin < arrival and end > NEVER:
        leave, takes = (
            min(max(arrival, begin + memory.power_down_stay), end),
            memory.power_down_exit,
        )
        if memory.power_down_named == 1:
            _note(state, begin, PDE)
            _note(state, leave, PDX)
    else:
        return
    _book(memory, state, leave)
    awake = leave + takes
    for bus in range(state.bus_free.shape[0]):
        state.bus_free[bus] = max(state.bus_free[bus], awake)
    state.commands_over, state.data_over = awake, awake


@called
def stirred(memory: Record, state: Record, command: int, tick: int) -> None:
    """A command is issued: without a request it ends power-down, for which the exit began in time;
    in self-refresh it stands for what the die does by itself."""
    if nothing_waits(memory, state):
        if tick > _self_refresh_from(memory, state):
            _enter_self_refresh(memory, state)
            _book(memory, state, tick)
            if command == REFPB or command == REFAB:
                state.refreshes_asleep += 1
            return
        begin, end = _power_down(memory, state)
        leave = tick - memory.power_down_exit
        if end > NEVER and leave >= begin + memory.power_down_stay:
            _book(memory, state, leave)
            if memory.power_down_named == 1:
                _note(state, begin, PDE)
                _note(state, leave, PDX)
    state.commands_over = max(state.commands_over, tick + memory.lasts[command])
    if command >= RD and command <= MWRA:
        state.data_over = max(state.data_over, tick + memory.lasts[command])


def asleep_ns(states: NDArray[Any], tick_ns: float) -> dict[str, float]:
    """Time asleep by state, ns summed over the ranks of all pseudo-channels and channels; and
    `refreshes`, the commands that self-refresh made needless."""
    ticks = states["asleep"].sum(axis=(0, 1)).tolist()
    found = {name: value * tick_ns for name, value in zip(ASLEEP, ticks, strict=True)}
    return {**found, "refreshes": float(states["refreshes_asleep"].sum())}

"""Refresh obligations of a command log: is every bank refreshed in time and in its turn?

A *unit* is a refresh set of banks of a rank (`per_bank`) or the rank (`all_bank`). Its description
says how far apart two refreshes may be and how many there have to be; nothing is known here of how
a controller chooses. Times are integer ticks.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import numpy as np

from hwmodel.oracle.command_log import CODE, CommandLog, Ints
from hwmodel.specs.memory_spec import MemorySpec

MOST_POSTPONED = 8
"""Refreshes a unit may be behind or ahead of what is due (JEDEC)."""
Finding = tuple[Ints, str]
"""Positions in the log, and the rule that is broken there."""


def bank_in_rank(memory: MemorySpec, log: CommandLog) -> Ints:
    """Number of each command's bank within its rank."""
    o = memory.organisation
    return (log.stack * o.bankgroups + log.bankgroup) * o.banks_per_group + log.bank


def rank_in_channel(memory: MemorySpec, log: CommandLog) -> Ints:
    """Number of each command's rank within the channel, pseudo-channel outermost."""
    return log.pseudochannel * memory.organisation.ranks + log.rank


def closing_ticks(memory: MemorySpec) -> int:
    """Ticks that a refresh may take once nothing new goes to its banks.

    Requests whose row was opened for them come first (at most one a bank of the channel), then the
    banks are closed: each of these steps waits at most for the longest row and the longest burst.
    """
    c, commands = memory.controller, memory.commands.values()
    unused = [["REFPB"]] if c.refresh != "per_bank" and not memory.managed else []
    unused += [["REFAB"]] if c.refresh == "per_bank" and not memory.alerts else []
    unused += ([] if memory.managed else [["RFM"]]) + ([] if memory.alerts else [["RFMAB"]])
    delays = [memory.ticks(row.delay) for row in memory.constraints if row.after not in unused]
    bursts = [
        memory.ticks(data.latency) + memory.ticks(end)
        for data in (memory.data.read, memory.data.write)
        for _, end in data.segments
    ]
    slots = max(memory.tick_clock.ticks(Fraction(str(command.slots))) for command in commands)
    o = memory.organisation
    steps = o.pseudochannels * min(c.activation_buffer, o.banks // o.pseudochannels) + 3
    if memory.managed:  # RFMs of other sets may go before
        steps += len(memory.refresh_sets())
    if memory.alerts:  # and a back-off
        steps += memory.alerts.rfms + 1
    steps += len(memory.periodic)
    return steps * (max(delays) + max(bursts) + slots)


def longest_gap(memory: MemorySpec) -> int:
    """Ticks that a unit may go without a refresh; 9 intervals where 8 may be postponed.

    On time a set comes once an interval; in any order, first in one round and last in the next.
    To that postponing adds its intervals. Last comes the time to close banks, and in a fixed order
    that of one turn, over which activations of other banks may still go first; postponing leaves
    at least an eighth of an interval for it.
    """
    c, interval, sets = memory.controller, memory.refresh_ticks(), memory.refreshes_per_round
    spread = int(c.refresh_order == "idle_first" and sets > 1)
    postponed = c.refresh_postpone > spread
    turn = 0 if spread or sets == 1 else interval // sets
    late = max(0, turn + closing_ticks(memory) - interval // 8 * postponed)
    longest = (1 + max(c.refresh_postpone, spread)) * interval + late
    return min(longest, (1 + MOST_POSTPONED) * interval)


def refreshes_by_unit(memory: MemorySpec, log: CommandLog) -> Iterator[tuple[int, str, Ints]]:
    """(rank, name, positions of its refreshes) of each unit."""
    rank, bank = rank_in_channel(memory, log), bank_in_rank(memory, log)
    o = memory.organisation
    for number in range(o.pseudochannels * o.ranks):
        if memory.controller.refresh == "all_bank":
            chosen = (rank == number) & (log.command == CODE["REFAB"])
            yield number, f"rank {number}", np.flatnonzero(chosen)
            continue
        of_rank = (rank == number) & (log.command == CODE["REFPB"])
        for place, banks in enumerate(memory.refresh_sets()):
            index = np.flatnonzero(of_rank & (bank == banks[0]))
            yield number, f"rank {number} set {place}", index


def wrong_turns(memory: MemorySpec, log: CommandLog) -> Iterator[Finding]:
    """Sets of a rank are refreshed in order, or each once before any a second time."""
    sets = memory.refresh_sets()
    place = {banks[0]: number for number, banks in enumerate(sets)}
    rank, bank = rank_in_channel(memory, log), bank_in_rank(memory, log)
    o = memory.organisation
    for number in range(o.pseudochannels * o.ranks):
        index = np.flatnonzero((rank == number) & (log.command == CODE["REFPB"]))
        chosen = np.array([place[head] for head in bank[index].tolist()], dtype=np.int64)
        turn = np.arange(len(chosen)) // len(sets)
        if memory.controller.refresh_order == "idle_first":
            _, first = np.unique(turn * len(sets) + chosen, return_index=True)
            again = np.delete(np.arange(len(chosen)), first)
            yield index[again], "refresh order: the set was refreshed in this round"
        else:
            expected = (np.concatenate([[-1], chosen])[: len(chosen)] + 1) % len(sets)
            yield index[chosen != expected], "refresh order: not the set whose turn it is"


def debts(
    memory: MemorySpec, log: CommandLog, end: int, back_offs: dict[int, Ints]
) -> Iterator[Finding]:
    """Each unit: no gap too long; as many refreshes as intervals, but for those postponed and those
    that fell due during a back-off, until they are made up for.

    Time starts at 0, or up to one turn later where channels are staggered. The last command stands
    for refreshes that come no more; `end` is where the log ends. `back_offs`: of each rank, (n, 2)
    ticks from which to which it could not be refreshed.
    """
    c, interval = memory.controller, memory.refresh_ticks()
    if c.refresh == "none" or len(log.tick) == 0:
        return
    most, allowed = longest_gap(memory), min(c.refresh_postpone + 1, MOST_POSTPONED)
    staggered = c.refresh_phase == "staggered"
    start = interval // memory.refreshes_per_round if staggered else 0
    end = max(end, int(log.tick[-1]))
    for rank, unit, index in refreshes_by_unit(memory, log):
        tick, at = log.tick[index], np.append(index, len(log.tick) - 1)
        gaps = np.diff(np.concatenate([[start], tick, [end]]))
        rule = f"refresh debt: {unit} waits longer than {most / interval:.3g} intervals"
        yield at[gaps > most], rule
        before = np.arange(len(tick) + 1)
        behind = (np.append(tick, end) - start) // interval - before
        ahead = before[:-1] + 1 - tick // interval
        fell = (back_offs[rank] - start) // interval  # the last due before and after each
        many = np.minimum(fell[:, 1] - fell[:, 0] + 1, closing_ticks(memory) // interval)
        late = _unexcused(behind - allowed, np.append(tick, end), back_offs[rank][:, 0], many)
        yield (
            index[np.array(late[:-1], np.bool_)],
            f"refresh debt: {unit} more than {allowed} behind",
        )
        yield index[ahead > allowed], f"refresh debt: {unit} more than {allowed} ahead"
        if late[-1]:
            yield at[-1:], f"refresh debt: {unit} more than {allowed} behind at the end"


def _unexcused(excess: Ints, tick: Ints, begins: Ints, many: Ints) -> list[bool]:
    """Whether more refreshes are missing at a tick, above those allowed, than fell due in a
    back-off (`begins`, `many`) since none was."""
    found, excused, done = [], 0, 0
    for over, now in zip(excess.tolist(), tick.tolist(), strict=True):
        while done < len(begins) and begins[done] < now:
            excused = max(excused, int(many[done]))
            done += 1
        found.append(over > excused)
        if over <= 0:
            excused = 0
    return found


def periods(memory: MemorySpec, log: CommandLog, end: int) -> Iterator[Finding]:
    """Each command of kind PERIODIC comes in each rank when its time is over, and soon after."""
    if not memory.periodic or len(log.tick) == 0:
        return
    o, rank, end = memory.organisation, rank_in_channel(memory, log), max(end, int(log.tick[-1]))
    ranks = range(o.pseudochannels * o.ranks)
    for (kind, every), number in product(memory.periodic.items(), ranks):
        name = memory.command_name(kind)
        index = np.flatnonzero((rank == number) & (log.command == CODE[kind]))
        gaps = np.diff(np.concatenate([[0], log.tick[index], [end]]))
        at = np.append(index, len(log.tick) - 1)
        yield index[gaps[:-1] < every], f"{name}: rank {number} sooner than {every} ticks"
        late = gaps > every + 2 * closing_ticks(memory)
        yield at[late], f"{name}: rank {number} later than {every} ticks and what closing takes"

"""Kernel: refresh management (rules.md). Activations of each bank are counted, refreshes
take some off, and RFMs are issued for what is left: in time for closed banks that have too many,
before that where a set is idle."""

from __future__ import annotations

from hwmodel.kernel.jit import called, inlined
from hwmodel.kernel.kernel_names import (
    OWED_REFRESH,
    REFAB,
    REFPB,
    RFM,
    RFMAB,
    URGENT_REFRESH,
    Record,
)
from hwmodel.kernel.limits import MAX_BANKS, MAX_RANKS
from hwmodel.kernel.maintenance import (
    Candidate,
    bank_of,
    banks_in,
    first_of,
    step_for_set,
    waiting_in,
)
from hwmodel.kernel.mechanism import Mechanism
from hwmodel.specs.memory_spec import MemorySpec


def _lower(memory: MemorySpec) -> dict[str, int]:
    limits = memory.refresh.management
    if not memory.managed or limits is None:
        return {}
    return {
        "raaimt": limits.RAAIMT, "raammt": limits.RAAMMT, "rfm_sets": len(memory.refresh_sets()),
        "raa_by_rfm": limits.lowers(limits.RAADEC),
        "raa_by_refresh": limits.lowers(limits.RAAREF) if limits.RAAREF else 0,
    }  # fmt: skip


@inlined
def _opened(memory: Record, state: Record, bank: int) -> None:
    if memory.raaimt == 0:
        return
    state.raa[bank] += 1
    if state.raa[bank] == memory.raaimt:
        state.next_due = state.now  # what is owed is settled when requests have entered


@inlined
def _closed(memory: Record, state: Record, bank: int, row: int) -> None:
    if memory.raaimt == 0:
        return
    if state.raa[bank] >= memory.raammt:
        state.next_due = state.now


@inlined
def _due(memory: Record, state: Record, rank: int) -> int:
    """Book which sets of a rank owe an RFM; the banks of those that are urgent."""
    if memory.raaimt == 0:
        return 0
    owed, urgent, blocked = 0, 0, 0
    first = memory.pc_of[rank * memory.banks_per_rank] * memory.banks_per_pc
    for which in range(memory.rfm_sets):
        most, most_closed = 0, 0  # an open row may be read on: only activations are counted
        for i in range(memory.set_size):
            bank = bank_of(memory, False, rank, which, i)
            most = max(most, state.raa[bank])
            if state.open_row[bank] < 0:
                most_closed = max(most_closed, state.raa[bank])
        if most_closed >= memory.raammt:
            urgent |= 1 << which
            for i in range(memory.set_size):
                blocked |= 1 << (bank_of(memory, False, rank, which, i) - first)
        elif most >= memory.raaimt:
            owed |= 1 << which
    state.rfm_owed[rank], state.rfm_urgent[rank] = owed, urgent
    if (owed | urgent) != 0:
        state.maintained |= 1 << rank
    return blocked


@inlined
def _offer(memory: Record, state: Record, rank: int, pair_open: bool, best: Candidate) -> Candidate:
    """The next steps of RFMs that are urgent, and of those owed whose banks are idle."""
    if memory.raaimt == 0:
        return best
    for which in range(memory.rfm_sets):
        order = URGENT_REFRESH
        if (state.rfm_urgent[rank] >> which) & 1 == 0:
            order = OWED_REFRESH
            owed = (state.rfm_owed[rank] >> which) & 1 == 1
            if not owed or waiting_in(memory, state, False, rank, which) > 0:
                continue
        tick, command, bank = step_for_set(memory, state, RFM, rank, which, pair_open)
        best = first_of(best, tick, order, bank, command, bank, -1 - which)
    return best


@inlined
def _done(memory: Record, state: Record, command: int, rank: int, which: int) -> None:
    if memory.raaimt == 0:
        return
    if command == REFPB or command == REFAB or command == RFM or command == RFMAB:
        _lower_counters(memory, state, command, rank, which)


@called
def _lower_counters(memory: Record, state: Record, command: int, rank: int, which: int) -> None:
    """A refresh or an RFM takes its share off the activations of its banks."""
    less = memory.raa_by_rfm if command == RFM or command == RFMAB else memory.raa_by_refresh
    whole = command == REFAB or command == RFMAB
    for i in range(banks_in(memory, whole)):
        bank = bank_of(memory, whole, rank, which, i)
        state.raa[bank] = max(0, state.raa[bank] - less)
    state.next_due = state.now


MECHANISM = Mechanism(
    on="raaimt",
    lower=_lower,
    constants={
        "raaimt": "activations of a bank from which an RFM is owed; 0: no RFMs",
        "raammt": "activations of a closed bank from which an RFM is urgent",
        "raa_by_refresh": "activations that a refresh takes off",
        "raa_by_rfm": "activations that an RFM takes off",
        "rfm_sets": "sets of banks of a rank that RFMs address",
    },
    state={
        "raa": (MAX_BANKS,),  # activations, less what refreshes and RFMs take off
        "rfm_owed": (MAX_RANKS,),  # sets whose RFM may wait, a bit mask
        "rfm_urgent": (MAX_RANKS,),  # sets whose RFM may not, a bit mask
    },
    opened=_opened,
    closed=_closed,
    due=_due,
    offer=_offer,
    done=_done,
)

"""A rule of a controller as one file: a bank that was opened `activations` times opens no sooner
than `gap` after its last activation, until a refresh of it (after BlockHammer, HPCA 2021, which
slows rows down by their counts).

    controller:
      rules: {activation_gap: {activations: 64, gap: 500ns}}
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hwmodel.description.description import Strict
from hwmodel.description.units import ExactNanoseconds
from hwmodel.kernel.jit import inlined
from hwmodel.kernel.kernel_names import REFAB, REFPB, Record
from hwmodel.kernel.limits import MAX_BANKS
from hwmodel.kernel.maintenance import bank_of, banks_in
from hwmodel.kernel.mechanism import Mechanism, options_of
from hwmodel.specs.memory_spec import MemorySpec


class Options(Strict):
    """Activations of a bank between two refreshes, from which on it waits."""

    activations: Annotated[int, Field(ge=1)]
    gap: ExactNanoseconds


def _lower(memory: MemorySpec) -> dict[str, int]:
    given = options_of(memory, "activation_gap", Options)
    if given is None:
        return {}
    clock = memory.tick_clock
    ticks = clock.ticks(clock.clocks_of_ns(given.gap))
    return {"gap_from": given.activations, "gap_ticks": ticks}


@inlined
def _opened(memory: Record, state: Record, bank: int) -> None:
    if memory.gap_from == 0:
        return
    state.opened_since[bank] += 1
    if state.opened_since[bank] >= memory.gap_from:
        state.ready[memory.first, bank] = max(
            state.ready[memory.first, bank], state.now + memory.gap_ticks
        )


@inlined
def _done(memory: Record, state: Record, command: int, rank: int, which: int) -> None:
    if memory.gap_from == 0:
        return
    if command == REFAB or command == REFPB:
        for i in range(banks_in(memory, command == REFAB)):
            state.opened_since[bank_of(memory, command == REFAB, rank, which, i)] = 0


MECHANISM = Mechanism(
    on="gap_from",
    lower=_lower,
    constants={
        "gap_from": "activations of a bank from which it opens slowly; 0: never",
        "gap_ticks": "ticks between two of these",
    },
    state={"opened_since": (MAX_BANKS,)},  # activations since the last refresh
    opened=_opened,
    done=_done,
)

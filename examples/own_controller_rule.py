"""What does it cost to open a bank slowly once it was opened often, as a guard against row hammer
(after BlockHammer, HPCA 2021)? Adds a rule to the memory controller, simulates reads of 64 B at
random without and with it. Prints the bandwidths. The auditor asks the same class what is illegal.

    python examples/own_controller_rule.py
    bankwise memory lpddr5-6400-x16 --plugin examples/own_controller_rule.py --pattern random_64B \\
        --set 'controller.rules={activation_gap: {activations: 64, gap: 500ns}}'
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

import bankwise
from hwmodel.description.description import Strict
from hwmodel.description.units import ExactNanoseconds
from hwmodel.kernel.jit import inlined
from hwmodel.kernel.kernel_names import REFAB, REFPB
from hwmodel.kernel.limits import MAX_BANKS
from hwmodel.kernel.maintenance import bank_of, banks_in
from hwmodel.kernel.mechanism import options_of
from hwmodel.oracle.command_log import CODE
from hwmodel.oracle.refresh_audit import bank_in_rank, rank_in_channel
from hwmodel.specs.controller_rule import ControllerRule


class Options(Strict):
    activations: int
    gap: ExactNanoseconds


@inlined
def _opened(memory: Any, state: Any, bank: int) -> None:
    if memory.gap_from == 0:
        return
    state.opened_since[bank] += 1
    if state.opened_since[bank] >= memory.gap_from:
        first = memory.first  # ACT, or ACT1
        state.ready[first, bank] = max(state.ready[first, bank], state.now + memory.gap_ticks)


@inlined
def _done(memory: Any, state: Any, command: int, rank: int, which: int) -> None:
    if memory.gap_from > 0 and (command == REFAB or command == REFPB):
        for i in range(banks_in(memory, command == REFAB)):
            state.opened_since[bank_of(memory, command == REFAB, rank, which, i)] = 0


class ActivationGap(ControllerRule):
    name, on = "activation_gap", "gap_from"
    constants = {
        "gap_from": "activations of a bank, since its last refresh, from which it opens slowly",
        "gap_ticks": "ticks between two of these",
    }
    state = {"opened_since": (MAX_BANKS,)}
    opened, done = staticmethod(_opened), staticmethod(_done)

    @staticmethod
    def lower(memory: Any) -> dict[str, int]:
        given = options_of(memory, "activation_gap", Options)
        if given is None:
            return {}
        clock = memory.tick_clock
        return {"gap_from": given.activations,
                "gap_ticks": clock.ticks(clock.clocks_of_ns(given.gap))}  # fmt: skip

    @staticmethod
    def audit(memory: Any, log: Any) -> Iterator[tuple[np.ndarray, str]]:
        given = options_of(memory, "activation_gap", Options)
        if given is None:
            return
        gap = memory.tick_clock.ticks(memory.tick_clock.clocks_of_ns(given.gap))
        sets = {bank: set(each) for each in memory.refresh_sets() for bank in each}
        opened: dict[tuple[int, int], list[int]] = {}  # of a bank of a rank: its ticks
        late = []
        ranks, banks = rank_in_channel(memory, log), bank_in_rank(memory, log)
        for at, command in enumerate(log.command.tolist()):
            rank, bank = int(ranks[at]), int(banks[at])
            if command in (CODE["ACT"], CODE["ACT1"]):
                before = opened.setdefault((rank, bank), [])
                if len(before) >= given.activations and log.tick[at] < before[-1] + gap:
                    late.append(at)
                before.append(int(log.tick[at]))
            elif command in (CODE["REFAB"], CODE["REFPB"]):
                for place in list(opened):
                    whole = command == CODE["REFAB"]
                    if place[0] == rank and (whole or place[1] in sets[bank]):
                        del opened[place]
        yield np.array(late, np.int64), f"activation_gap: {given.gap} ns after an activation"


def main() -> None:
    rule = "controller.rules={activation_gap: {activations: 8, gap: 500ns}}"
    for name, sets in (("without", []), ("with it", [rule])):
        found = bankwise.memory("lpddr5-6400-x16", pattern="random_64B", set=sets)
        print(f"{name}: {found.rows[0]['bandwidth_gbps']:.2f} GB/s")


if __name__ == "__main__":
    bankwise.plugin(__file__)
    main()

"""Every bank is refreshed as often as it has to be, in every order, however long it is put off.

Of each unit (a set of banks, or the rank): refreshes over a time T within 8 of T / tREFI, no gap
over 9 tREFI (both less where less is postponed), and every set of a round once before any twice.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hwmodel.oracle.audit import audit
from hwmodel.oracle.command_log import CODE
from hwmodel.specs.memory_spec import MemorySpec
from tests.hwmodel.memories import spec
from tests.hwmodel.one_channel import simulate_channel
from tests.rotation import rotated

INTERVALS = 40
NAMES = ["lpddr5-6400-x16", "lpddr5-6400-x16-8b", "hbm2e-3.2", "ddr5-4800-x32"]
TRAFFIC = ("busy", "idle", "bursty", "pause")


def requests(memory: MemorySpec, traffic: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(arrival, address, kind) over about INTERVALS refresh intervals; 14 where a pause, in which
    refreshes come early, is followed by traffic that puts them off for as long as it may."""
    chance = np.random.default_rng(11)
    o, end = memory.organisation, INTERVALS * memory.refresh_ticks()
    if traffic == "idle":
        arrival = np.linspace(0, end, 30).astype(np.int64)
    elif traffic == "busy":
        arrival = np.arange(0, end, 8, dtype=np.int64)
    elif traffic == "pause":
        interval = memory.refresh_ticks()
        busy = np.arange(5 * interval // 2, 14 * interval, 3, dtype=np.int64)
        arrival = np.concatenate([np.zeros(1, dtype=np.int64), busy])
    else:
        starts = np.sort(chance.integers(0, end, 40))
        arrival = np.sort(np.concatenate([starts + 3 * i for i in range(150)]))
    bursts = o.capacity_bytes // o.burst_bytes
    address = chance.integers(0, bursts, len(arrival)) * o.burst_bytes
    return arrival, address, (chance.random(len(arrival)) < 0.3).astype(np.int64)


ORDERS = [("per_bank", "round_robin"), ("per_bank", "idle_first"), ("all_bank", "round_robin")]


@pytest.mark.parametrize(
    ("traffic", "name", "of", "postpone"), rotated(TRAFFIC, NAMES, ORDERS, [0, 8, 1, 2, 4])
)
def test_each_bank_has_its_refreshes(
    traffic: str, name: str, of: tuple[str, str], postpone: int
) -> None:
    policy, order = of
    memory = spec(
        name,
        controller__refresh=policy,
        controller__refresh_order=order,
        controller__refresh_postpone=postpone,
    )
    found = simulate_channel(memory, *requests(memory, traffic))
    log, interval = found.commands, memory.refresh_ticks()
    assert audit(memory, log, end_tick=int(found.end_tick)) == []
    # first in one round and last in the next, a set waits for two intervals
    spread = int(order == "idle_first" and policy == "per_bank")
    longest = (1 + max(postpone, spread)) * interval
    if postpone <= spread:
        longest += interval // 2  # to close banks; postponing leaves the time for that
    sets = [banks[0] for banks in memory.refresh_sets()] if policy == "per_bank" else [-1]
    o = memory.organisation
    for pc, rank in itertools.product(range(o.pseudochannels), range(o.ranks)):
        of_rank = (log.pseudochannel == pc) & (log.rank == rank)
        chosen = of_rank & np.isin(log.command, [CODE["REFPB"], CODE["REFAB"]])
        flat = (log.stack * o.bankgroups + log.bankgroup) * o.banks_per_group + log.bank
        heads = flat[chosen] if policy == "per_bank" else np.full(int(chosen.sum()), -1)
        for start in range(0, len(heads), len(sets)):
            part = heads[start : start + len(sets)].tolist()
            assert len(set(part)) == len(part) and set(part) <= set(sets)
        end = int(log.tick[-1])
        for head in sets:
            ticks = log.tick[chosen][heads == head]
            assert abs(len(ticks) - end // interval) <= min(postpone + 1, 8)
            gaps = np.diff(np.concatenate([[0], ticks, [end]]))
            assert gaps.max() <= longest


@pytest.mark.parametrize("name", ["lpddr4-4266-x16", "lpddr5-6400-x16", "ddr5-4800-x32"])
def test_no_bank_waits_longer_than_nine_short_intervals_for_its_buffered_requests(
    name: str,
) -> None:
    """An eighth of tREFI, here 61 ns, is not enough to serve sixteen of them."""
    changes = {"refresh": "all_bank", "refresh_postpone": 8, "activation_buffer": 16}
    memory = spec(name, timing__tREFI="488ns", **{f"controller__{k}": changes[k] for k in changes})
    found = simulate_channel(memory, *requests(memory, "busy"))
    assert audit(memory, found.commands, end_tick=int(found.end_tick)) == []


def test_ramulators_hbm2_is_refreshed_bank_by_bank_where_asked() -> None:
    memory = spec("ramulator-hbm2-2.0", controller__refresh="per_bank")
    found = simulate_channel(memory, *requests(memory, "busy"))
    assert audit(memory, found.commands, end_tick=int(found.end_tick)) == []
    refreshes = int((found.commands.command == CODE["REFPB"]).sum())
    assert abs(refreshes - memory.organisation.banks * INTERVALS) <= memory.organisation.banks
    assert CODE["REFAB"] not in found.commands.command


def test_a_set_refreshed_twice_in_a_round_is_found_out() -> None:
    memory = spec(
        "lpddr5-6400-x16",
        controller__refresh="per_bank",
        controller__refresh_order="idle_first",
    )
    found = simulate_channel(memory, *requests(memory, "idle"))
    log = found.commands
    first, second = np.flatnonzero(log.command == CODE["REFPB"])[:2]
    for column in (log.bankgroup, log.bank):
        column[second] = column[first]
    rules = [v.rule for v in audit(memory, log, end_tick=int(found.end_tick))]
    assert "refresh order: the set was refreshed in this round" in rules

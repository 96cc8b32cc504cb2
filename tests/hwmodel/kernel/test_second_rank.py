"""A second rank: reads that alternate between ranks pay the turnaround of DQ, and stay legal."""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.description.library import names
from hwmodel.oracle.audit import audit
from hwmodel.specs.device import load_device
from tests.hwmodel.one_channel import simulate_channel
from tests.rotation import LONG

NAMES = names("memories")
RANKED = [
    name
    for name in NAMES
    if any(row.scope == "other_rank" for row in load_device(name).memory.constraints)
]
REFRESHED = [
    (name, refresh)
    for name in RANKED
    for refresh in ("all_bank", "per_bank")
    if getattr(load_device(name).memory.refresh, refresh) is not None
]
TURNAROUND = {"lpddr4-4266-x16": "tRTRS", "dramsys-lpddr4-4266-x16": "tRTRS"}


def two_ranks(name: str, settings: list[str]) -> list[str]:
    """Settings of a second rank in the lowest bit of the address map."""
    fields = load_device(name).memory.resolved_address_map()
    listed = ",".join(f"{field}:{bits}" for field, bits in fields)
    return ["organisation.ranks=2", f"address_map=[rank:1,{listed}]", "bank_hash=[]", *settings]


@pytest.mark.parametrize("name", RANKED)
def test_alternating_reads_of_two_open_rows_pay_the_turnaround(name: str) -> None:
    settings = ["controller.scheduler=fcfs", "controller.refresh=none"]
    memory = load_device(name, two_ranks(name, settings)).memory
    count = 20_000
    address = np.arange(count) % 4 * memory.organisation.burst_bytes
    result = simulate_channel(memory, np.zeros(count, np.int64), address, np.zeros(count, bool))
    burst, gap = memory.ticks("nBL"), memory.ticks(TURNAROUND.get(name, "tCS"))
    assert result.end_tick / count == pytest.approx(burst + gap, rel=0.01)


@pytest.mark.parametrize(("name", "refresh"), REFRESHED)
def test_random_reads_and_writes_of_two_ranks_are_legal(name: str, refresh: str) -> None:
    settings = [f"controller.refresh={refresh}", "controller.refresh_order=round_robin"]
    memory = load_device(name, two_ranks(name, settings)).memory
    chance = np.random.default_rng(3)
    count, o = 20_000 if LONG else 6_000, memory.organisation
    address = chance.integers(0, o.capacity_bytes // o.burst_bytes, count) * o.burst_bytes
    write = chance.random(count) < 0.3
    result = simulate_channel(memory, np.zeros(count, np.int64), address, write, log=True)
    assert audit(memory, result.commands, end_tick=int(result.end_tick)) == []

"""Densities, and the latencies of LPDDR5 that follow from others: what `--set` of one moves."""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.specs.device import device_names, load_device
from hwmodel.specs.memory_spec import MemorySpec
from tests.hwmodel.memories import SHIPPED, spec
from tests.hwmodel.one_channel import simulate_channel

DENSITIES = [(name, density) for name in SHIPPED for density in spec(name).densities]
SYNCED = [name for name in SHIPPED if "tWCKENL_RD" in spec(name).timing]


@pytest.mark.parametrize(("name", "density"), DENSITIES)
def test_a_density_brings_its_rows_and_refresh_times(name: str, density: str) -> None:
    memory = load_device(name, [f"density={density}"]).memory
    chosen = memory.densities[density]
    assert memory.organisation.rows == chosen.rows
    assert chosen.timing.items() <= memory.timing.items()
    # a die of an x16 channel, a whole HBM channel, or each of the x8 dies of a (sub)channel
    dies = {"ddr4": 8, "ddr5": 4}.get(name.split("-")[0], 1)
    assert memory.organisation.capacity_bytes == int(density[:-2]) * dies << 27


@pytest.mark.parametrize("name", [name for name in SHIPPED if spec(name).densities])
def test_the_density_that_is_chosen_is_the_one_that_the_file_spells_out(name: str) -> None:
    resolved, stated = load_device(name).memory, spec(name)
    assert stated.density in stated.densities
    assert resolved.organisation == stated.organisation and resolved.timing == stated.timing


def test_a_timing_that_is_set_wins_over_that_of_the_density() -> None:
    settings = ["timing.tRFCab=300ns", "density=32Gb"]
    memory = load_device("lpddr5-6400-x16", settings).memory
    assert memory.ticks("tRFCab") == 240 and memory.ticks("tRFCpb") == 152


def test_all_memories_of_the_reference_standards_are_shipped() -> None:
    assert {name.split("-")[0] for name in device_names()} >= {
        "lpddr4", "lpddr5", "lpddr5x", "hbm2", "hbm2e", "hbm3", "ddr5", "ramulator",
    }  # fmt: skip


def after_cas(memory: MemorySpec, command: str) -> int:
    """Clocks from CAS to a column command."""
    found = [r for r in memory.constraints if r.after == ["CAS"] and command in r.before]
    return memory.ticks(found[0].delay)


@pytest.mark.parametrize("name", SYNCED)
def test_cas_comes_one_slot_ahead_in_the_described_latency_set(name: str) -> None:
    assert after_cas(spec(name), "RD") == after_cas(spec(name), "WR") == 1


@pytest.mark.parametrize(("latency", "enable"), [("18nCK", "8nCK"), ("20nCK", "10nCK")])
def test_other_read_latency_sets_keep_cas_one_slot_ahead(latency: str, enable: str) -> None:
    memory = spec("lpddr5-6400-x16", timing__RL=latency, timing__tWCKENL_RD=enable)
    assert after_cas(memory, "RD") == 1


def test_a_later_data_clock_puts_cas_further_ahead() -> None:
    memory = spec("lpddr5-6400-x16", timing__tWCKENL_RD="10nCK", timing__tWCKENL_WR="6nCK")
    assert (after_cas(memory, "RD"), after_cas(memory, "WR")) == (4, 3)


@pytest.mark.parametrize(
    ("name", "odt", "clocks"),
    [
        ("lpddr5-6400-x16", 1, [17, 15]),
        ("lpddr5-6400-x16", 0, [14, 12]),
        ("lpddr5x-8533-x16", 1, [21, 19]),
    ],
)
def test_read_to_write_is_the_one_of_public_drivers(name: str, odt: int, clocks: list[int]) -> None:
    """Within a bank group and across; 17 and 21 are the figures of the Renesas driver."""
    memory = load_device(name, [f"timing.DQ_ODT={odt}nCK"]).memory
    rows = [r for r in memory.constraints if "RD" in r.after and "WR" in r.before]
    assert [memory.ticks(r.delay) for r in rows if r.scope != "other_rank"] == clocks


def test_link_ecc_puts_off_read_data_and_the_writes_behind_it() -> None:
    ends = []
    for clocks in (0, 3):
        settings = [f"timing.nLECC={clocks}nCK", "controller.refresh=none"]
        memory = load_device("lpddr5-6400-x16", settings).memory
        address, write = np.array([0, 32]), np.array([False, True])
        ends.append(
            [
                simulate_channel(memory, np.zeros(n, np.int64), address[:n], write[:n]).end_tick
                for n in (1, 2)
            ]
        )
    assert [b - a for a, b in zip(*ends, strict=True)] == [3, 3]

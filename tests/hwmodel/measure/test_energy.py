"""Is energy the integral of what the commands did, and does it say how sure it is?"""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest

from hwmodel.description.library import names
from hwmodel.kernel.power import ASLEEP
from hwmodel.measure.bandwidth import measure
from hwmodel.measure.energy import (
    INPUTS,
    confidence,
    energy_figures,
    energy_parts,
    inputs,
)
from hwmodel.measure.open_loop import OpenLoop
from hwmodel.oracle.command_log import CommandLog
from hwmodel.specs.commands import COMMANDS
from hwmodel.specs.device import load_device
from hwmodel.specs.memory_spec import MemorySpec

LPDDR5 = "lpddr5-6400-x16"
TWO_RANKS = [
    "organisation.ranks=2", "address_map=[column:1,bankgroup:2,column:5,bank:2,rank,row]"
]  # fmt: skip


def active_ticks(memory: MemorySpec, log: CommandLog, end: int) -> int:
    """Ticks with a bank open, over all ranks, from the commands alone, one by one."""
    opened: dict[tuple[int, int], set[tuple[int, ...]]] = defaultdict(set)
    total, since = 0, {}
    for tick, code, pc, rank, stack, group, bank, *_ in zip(
        *(a.tolist() for a in log), strict=True
    ):
        name, place, at = COMMANDS[code], (stack, group, bank), (pc, rank)
        before = bool(opened[at])
        if name in ("ACT", "ACT2"):
            opened[at].add(place)
        elif name in ("PRE", "RDA", "WRA"):
            opened[at].discard(place)
        elif name == "PREA":
            opened[at].clear()
        if opened[at] and not before:
            since[at] = tick
        elif before and not opened[at]:
            total += tick - since.pop(at)
    return total + sum(end - tick for tick in since.values())


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        (LPDDR5, ["controller.refresh=per_bank"]),
        (LPDDR5, ["controller.refresh=all_bank", *TWO_RANKS]),
        (LPDDR5, ["controller.page_policy=closed", "controller.refresh=none"]),
        ("lpddr4-4266-x16", ["controller.page_policy=timeout", "controller.page_timeout=50ns"]),
        ("hbm2e-3.2", ["controller.refresh=all_bank"]),
        ("hbm3-6.4", ["controller.page_policy=closed"]),
    ],
)
def test_time_with_a_bank_open_is_that_of_the_command_log(name: str, settings: list[str]) -> None:
    memory = load_device(name, settings).memory
    o = memory.organisation
    chance = np.random.default_rng(5)
    address = chance.integers(0, o.capacity_bytes // o.burst_bytes, 3000) * o.burst_bytes
    arrival = np.cumsum(chance.choice([0, 3, 500], 3000, p=[0.6, 0.38, 0.02])).astype(np.int64)
    parts: list[CommandLog] = []
    run = OpenLoop(memory, 1, lambda _, part: parts.append(part))
    run.feed(0, address, (chance.random(3000) < 0.3).astype(np.int64), arrival)
    run.finish()
    log = CommandLog(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    expected = active_ticks(memory, log, run.end_tick)
    ranks = o.pseudochannels * o.ranks
    assert 0 < expected < run.end_tick * ranks
    assert run.active_ns == pytest.approx(memory.tick_clock.ns_of_ticks(expected), rel=1e-12)
    counted = Counter(COMMANDS[code] for code in log.command.tolist())
    assert {name: n for name, n in run.commands.items() if n} == counted


def test_every_command_and_each_standby_has_its_energy() -> None:
    memory = load_device(LPDDR5).memory
    e, burst = memory.energy, memory.organisation.burst_bytes
    commands = {
        "ACT1": 7, "ACT2": 7, "RD": 20, "RDA": 3, "WR": 2, "WRA": 1, "MWR": 2, "CAS": 9, "PRE": 3,
    }  # fmt: skip
    parts = energy_parts(memory, commands, 1000.0, 400.0)
    assert parts == pytest.approx(
        {
            "activation": 7 * e.activate / 1000,
            "read": 23 * burst * e.read_per_byte / 1000,
            "write": 5 * burst * e.write_per_byte / 1000,
            "refresh": 0.0,
            "background_precharged": 0.6 * e.background.precharged,
            "background_active": 0.4 * e.background.active,
        }
    )


def test_a_refresh_costs_every_bank_that_it_reaches() -> None:
    """All banks of a rank, a pair of LPDDR5's bank-group mode, one bank of its 8-bank mode."""
    for name, banks in ((LPDDR5, 2), ("lpddr5-6400-x16-8b", 1), ("hbm2-2.0", 1)):
        memory = load_device(name).memory
        o = memory.organisation
        one = memory.energy.refresh_per_bank / 1000
        part = energy_parts(memory, {"REFPB": 3}, 0.0, 0.0)["refresh"]
        assert part == pytest.approx(3 * banks * one)
        whole = energy_parts(memory, {"REFAB": 1}, 0.0, 0.0)["refresh"]
        assert whole == pytest.approx(o.banks // (o.pseudochannels * o.ranks) * one)


def test_each_state_of_less_power_has_its_constant() -> None:
    states = {each if each.startswith("power_down") else each.rsplit("_", 1)[0] for each in ASLEEP}
    assert states < INPUTS.keys()


def test_energy_is_as_sure_as_the_least_sure_constant_in_it() -> None:
    device = load_device("hbm2-2.0")
    reading = energy_parts(device.memory, {"ACT": 10, "RD": 40}, 0.0, 0.0)
    assert confidence(device, reading) == "C"
    assert set(inputs(device, reading)) == {"activate", "read_per_byte"}
    parts = energy_parts(device.memory, {"ACT": 10, "RD": 40, "WR": 1}, 1000.0, 900.0)
    assert confidence(device, parts) == "D"
    found = inputs(device, parts)
    assert found["write_per_byte"]["confidence"] == "D"
    assert sum(item["share"] for item in found.values()) == pytest.approx(1)


def test_figures_add_up_and_every_shipped_constant_states_its_confidence() -> None:
    from hwmodel.specs.device import device_names

    for name in device_names():
        device = load_device(name)
        if device.given is not None:
            continue
        e = device.memory.energy
        stated = {**e.model_dump(), **{f"background.{k}": v for k, v in e.background}}
        parts = {name: 1.0 for name, of in INPUTS.items() if stated[of] is not None}
        found = energy_figures(device, parts)
        assert found["energy_nj"] == pytest.approx(sum(found["energy"].values()))
        letters = {item["confidence"] for item in found["energy_inputs"].values()}
        assert letters <= set("ABCD") and found["energy_confidence"] == max(letters), name


LPDDR = [name for name in names("memories") if name.startswith("lpddr")]


@pytest.mark.parametrize("name", LPDDR)
def test_the_powers_of_lpddr_add_up(name: str) -> None:
    """A die asleep takes no more than one that is awake and refreshed; refreshing less than
    standing by; a stream in order more for its bytes than for its refreshes."""
    memory = load_device(name).memory
    b, o = memory.energy.background, memory.organisation
    tick_ns = memory.tick_clock.ns_of_ticks(1)
    ranks = o.pseudochannels * o.ranks
    refresh = memory.energy.refresh_per_bank * o.banks / ranks / (memory.refresh_ticks() * tick_ns)
    assert b.power_down_precharged < b.power_down_active < b.precharged <= b.active
    assert refresh < b.precharged
    assert b.power_down_precharged < b.self_refresh < b.precharged
    assert refresh < b.self_refresh <= 1.01 * (b.power_down_precharged + refresh)
    parts = measure(load_device(name), "sequential")["energy"]
    standby = parts["background_active"] + parts["background_precharged"]
    assert parts["read"] > standby > parts["refresh"] and parts["read"] > parts["activation"]
    assert parts["refresh"] < 0.12 * sum(parts.values())

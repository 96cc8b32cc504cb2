"""Is the energy of a token that of its bytes and its time, and does it say how sure it is?"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from hwmodel.measure.energy import energy_range
from policies.memory.step_energy import serving_energy, transfer
from tests.policies.small import device, requests, run

STREAM = requests(np.zeros(8), 32, 40)


def test_a_byte_costs_what_its_simulation_spent_on_it() -> None:
    memory = device(4096).memory
    e, burst = memory.energy, memory.organisation.burst_bytes
    results = [SimpleNamespace(commands={"ACT2": 3, "RD": 10}), SimpleNamespace(commands={"WR": 6})]
    assert transfer(memory, results) == pytest.approx(
        {
            "activation": 3 * e.activate / (16 * burst) / 1000,
            "read": 10 * e.read_per_byte / 16 / 1000,
            "write": 6 * e.write_per_byte / 16 / 1000,
        }
    )
    assert transfer(memory, [SimpleNamespace(commands={})]) == {}


def test_a_token_pays_for_bytes_refresh_and_standby() -> None:
    card = device(4096, "controller.refresh=per_bank")
    e, o = card.memory.energy, card.memory.organisation
    each = {"activation": 0.0, "read": 0.02, "write": 0.0}  # nJ a byte
    found = serving_energy(
        card, {"weights": 1_000_000, "migration": 0}, {"weights": each}, 0.3, 0.1, 10
    )
    assert found is not None
    parts = found["parts_mj_per_token"]
    assert parts["read"] == pytest.approx(1e6 * 0.02e-6 / 10)
    standby = card.channels * (0.3 * e.background.active + 0.1 * e.background.precharged)
    assert parts["background_active"] + parts["background_precharged"] == pytest.approx(
        standby / 10
    )
    interval_s = card.memory.tick_clock.ns_of_ticks(card.memory.refresh_ticks()) * 1e-9
    refreshed = 0.4 / interval_s * o.banks * card.channels
    assert parts["refresh"] == pytest.approx(refreshed * e.refresh_per_bank * 1e-9 / 10)
    assert found["mj_per_token"] == pytest.approx(sum(parts.values()))
    assert found["confidence"] == "D"
    assert found["low_mj_per_token"] == pytest.approx(found["mj_per_token"] / 2)
    assert found["high_mj_per_token"] == pytest.approx(found["mj_per_token"] * 2)


def test_tokens_of_a_joule_are_the_inverse_and_the_board_draws_its_limit() -> None:
    metrics = run(4096, STREAM, memory={"fidelity": "analytic"}).metrics
    found, energy = metrics["tokens_per_joule"], metrics["energy"]
    assert found["dram"] == pytest.approx(1000 / energy["mj_per_token"])
    assert found["dram_low"] < found["dram"] < found["dram_high"]
    card = device(4096)
    assert card.accelerator.power == 150_000
    rate = metrics["makespan_output_tokens_per_s"]
    assert found["board"] == pytest.approx(rate / 150, rel=0.05)


@pytest.mark.parametrize(("grade", "factor"), [("A", 1.1), ("B", 1.25), ("C", 1.5), ("D", 2.0)])
def test_the_range_of_an_energy_is_that_of_its_constants(grade: str, factor: float) -> None:
    card = replace(device(4096), confidence={"energy.read_per_byte": grade})
    low, high = energy_range(card, {"read": 3.0})
    assert (low, high) == pytest.approx((3 / factor, 3 * factor))
    assert energy_range(card, {"read": 3.0, "write": 1.0})[1] == pytest.approx(3 * factor + 2)

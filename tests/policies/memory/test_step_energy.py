"""Is the energy of a token that of its bytes and its time, and does it say how sure it is?"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

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
    card = device(4096)
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


def test_bytes_that_were_never_simulated_have_no_energy() -> None:
    assert serving_energy(device(4096), {"weights": 1}, {"weights": {}}, 1.0, 0.0, 1) is None
    assert run(4096, STREAM, memory={"efficiency": 0.8}).metrics["energy"] is None


def test_a_served_token_has_its_energy_in_either_fidelity() -> None:
    sampled, analytic = (
        run(4096, STREAM, memory={"fidelity": fidelity}).metrics["energy"]
        for fidelity in ("sampled", "analytic")
    )
    assert sampled["confidence"] == analytic["confidence"] == "D"
    assert sampled["mj_per_token"] > 0 and analytic["mj_per_token"] > 0
    assert sum(item["share"] for item in sampled["inputs"].values()) == pytest.approx(1)

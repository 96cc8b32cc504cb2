"""Is the energy of a token that of its bytes and its time, and does it say how sure it is?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hwmodel.measure.energy import energy_range
from tests.policies.small import device, requests, run

STREAM = requests(np.zeros(8), 32, 40)


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

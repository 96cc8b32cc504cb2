"""InferCept's waste, by hand and by its own profile."""

from __future__ import annotations

import pytest

from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from policies.transfers.pausing import (
    BesideBatch,
    Pause,
    StepCost,
    break_even_s,
    budget,
    drop_waste,
    paused,
    step_cost,
)

GPT_J = StepCost(0.0463e-3, 10e-3, 384)
"""6B on an A100: the profile in InferCept's repository."""


def test_a_context_of_one_chunk_is_waste_for_one_step() -> None:
    """300 tokens beside 20 requests fit the 364 that are left: a step of 320 tokens."""
    step_s = 0.0463e-3 * 320 + 10e-3
    expected = step_s * 300 + 0.0463e-3 * 300 * 5000
    assert drop_waste(300, GPT_J, BesideBatch(20, 5000)) == pytest.approx(expected)


def test_chunks_are_waste_from_when_they_are_stored() -> None:
    """1,000 tokens are 364, 364 and 272; the first two wait for those behind them."""
    full_s, last_s = 0.0463e-3 * 384 + 10e-3, 0.0463e-3 * (20 + 272) + 10e-3
    own = full_s * 364 + full_s * 2 * 364 + last_s * 1000
    found = drop_waste(1000, GPT_J, BesideBatch(20, 5000))
    assert found == pytest.approx(own + 0.0463e-3 * 1000 * 5000)


def test_short_pauses_are_kept_long_ones_dropped_and_hidden_swaps_are_free() -> None:
    batch = BesideBatch(20, 5000)
    even = break_even_s(1000, GPT_J, batch)
    short, long = (paused(f * even, 1000, GPT_J, batch, 1.0, 0) for f in (0.5, 2))
    assert (short.least, long.least) == ("keep", "drop")
    assert short.swap == 2 * 1.0 * 6000
    step_s = GPT_J.seconds(20)
    hidden = paused(2 * 10 * step_s, 1000, GPT_J, batch, 1.0, 100)
    assert (hidden.hidden, hidden.least) == (0.0, "swap")
    assert paused(1.9 * 10 * step_s, 1000, GPT_J, batch, 1.0, 100).hidden is None


def test_the_way_of_least_waste() -> None:
    assert Pause(1.0, 5.0, 4.0, 3.0, None).least == "swap"
    assert Pause(1.0, 5.0, 4.0, 9.0, None).least == "drop"


def test_what_hides_behind_a_step() -> None:
    copies = {16: 0.001, 32: 0.002, 64: 0.004}
    assert [budget(step, copies) for step in (0.0005, 0.002, 0.003, 1.0)] == [0, 32, 32, 64]


def test_a_step_is_a_line_in_what_it_computes() -> None:
    device = load_device("a100-80gb", ["kernels={class: ideal}"])  # rows are not padded to tiles
    model = load_model("llama-2-7b")
    steps = StepModel(device, model)
    cost = step_cost(device, model, steps, Efficiency(), BesideBatch(16, 16 * 512))
    assert device.accelerator is not None
    compute = device.accelerator.compute
    rate = compute.peak(model.weights) * compute.prefill_efficiency
    assert cost.token_s >= model.layer_flops / rate  # and attention among the chunk's tokens
    assert cost.token_s < 1.5 * model.layer_flops / rate
    assert 100 < cost.saturation < 1000

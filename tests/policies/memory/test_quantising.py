"""What does quantising KV cost, and where is it hidden?"""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.engines.scheduled_step import Chunk, Step
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency

BARE = ["kernels={class: ideal, attention_efficiency: 1.0}", "compute.prefill_efficiency=1.0"]
LLAMA = load_model("llama-2-7b")
STEP = Step(np.arange(8), 8 * 1024, [], [], 0, "offered_load")
NUMBERS = 2 * 32 * 4096


def attention_s(device: str, kv: str, *overrides: str, step: Step = STEP) -> float:
    steps = StepModel(load_device(device, [*BARE, *overrides]), LLAMA.stored_as(None, kv))
    return float(steps.times(step, 1, Efficiency()).attention_s[0])


def test_a_format_that_only_stores_costs_nothing() -> None:
    assert attention_s("a100-80gb", "int4_token_head") == pytest.approx(
        attention_s("oaken-hbm", "qserve", "clock.tCK=0.627759ns"), rel=1e-9
    )


def test_cores_convert_beside_the_flops_of_attention() -> None:
    slow = "compute.vector=1TFLOPS"
    flops_s = (8 * 1024 + 8) * LLAMA.attention_flops / 312e12
    found = attention_s("a100-80gb", "qserve", slow)
    assert found == pytest.approx(flops_s + NUMBERS * (8 * 1024 * 4 + 8 * 8) / 1e12)
    # an A100's 19.5 TFLOPS of vectors are hidden by what is read
    assert attention_s("a100-80gb", "qserve") == attention_s("a100-80gb", "int4_token_head")


def test_an_engine_in_the_dma_path_takes_no_time() -> None:
    slow = "compute.vector=1TFLOPS"
    moved = (8 * 1024 + 8) * LLAMA.stored_as(None, "oaken").kv_token_bytes
    assert attention_s("oaken-lpddr", "oaken", slow) == pytest.approx(moved / 1092.2667e9, rel=1e-6)
    assert attention_s("oaken-lpddr", "oaken", slow, "compute.quantiser=cores") > 10 * moved / 1e12


def test_chunks_are_quantised_as_they_are_stored() -> None:
    step = Step(np.arange(0), 0, [Chunk(0, 100, 50, True)], [], 0, "offered_load")

    def prefill_s(vector: str) -> float:
        device = load_device("a100-80gb", [*BARE, f"compute.vector={vector}"])
        steps = StepModel(device, LLAMA.stored_as(None, "qserve"))
        return steps.times(step, 1, Efficiency()).prefill_s

    difference = prefill_s("1TFLOPS") - prefill_s("2TFLOPS")
    assert difference == pytest.approx(NUMBERS * (100 * 4 + 50 * 8) * 0.5e-12)

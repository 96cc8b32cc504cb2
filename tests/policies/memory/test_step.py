"""Is a step as long as the roofline says?"""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.engines.scheduled_step import Step
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency

BARE = [
    "compute.prefill_efficiency=1.0", "compute.decode_efficiency=1.0",
    "kernels={class: ideal, attention_efficiency: 1.0}",
]  # fmt: skip
LLAMA = load_model("llama-2-7b")


def decode(batch: int, context: int) -> Step:
    return Step(np.arange(batch), batch * context, [], [], 0, "offered_load")


@pytest.mark.parametrize(
    ("device", "batch", "shown_ms"),
    [
        ("a100-80gb", 1, 6.7),
        ("a100-80gb", 16, 10.7),
        ("mlu370-x4", 1, 44.8),
        ("mlu370-x4", 16, 71.0),
    ],
)
def test_a_decode_step_of_llama_at_the_roofline(device: str, batch: int, shown_ms: float) -> None:
    steps = StepModel(load_device(device, BARE), LLAMA)
    total_ms = steps.times(decode(batch, 1024), 1, Efficiency()).total_s[0] * 1e3
    assert round(total_ms, 1) == shown_ms
    # the weights without the embedding table, 1024 tokens read and one written by each request
    moved = 13_214_687_232 + batch * 1025 * (512 << 10)
    assert total_ms == pytest.approx(moved / steps.bandwidth * 1e3, rel=1e-12)


def test_a_bare_memory_cannot_serve() -> None:
    with pytest.raises(DescriptionError, match="needs an accelerator"):
        StepModel(load_device("lpddr5-6400-x16"), LLAMA)

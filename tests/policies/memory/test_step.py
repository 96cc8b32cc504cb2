"""Is a step as long as the roofline says?"""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.engines.scheduled_step import Chunk, Step
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


def chunks(*parts: Chunk, batch: int = 0) -> Step:
    return Step(np.arange(batch), batch * 100, list(parts), [], 0, "")


@pytest.mark.parametrize(("way", "left"), [("max", 0), ("sum", 1), (0.5, 0.5)])
def test_phases_that_are_moved_together_are_one(way: object, left: float) -> None:
    """All bytes beside all FLOPs: never longer than in turn at the same efficiencies, and as long
    where nothing is hidden."""
    device = load_device("mlu370-x4", [*BARE, f"compute.overlap={way}"])
    shares = Efficiency(0.9, 0.8, 0.7)
    for step in (chunks(Chunk(9, 300, 700, True), batch=32), decode(32, 2000)):
        for slowdown in (1.0, 1.2):
            turn, one = (
                StepModel(device, LLAMA, slowdown=slowdown, together=each).times(step, 1, shares)
                for each in (False, True)
            )
            in_turn, at_once = float(turn.total_s[0]), float(one.total_s[0])
            assert at_once <= in_turn * (1 + 1e-12)
            parts = one.weights_s + one.prefill_s + one.attention_s[0] + one.overhead_s
            assert parts == pytest.approx(at_once)
            if left == 1 and slowdown == 1:
                assert at_once == pytest.approx(in_turn)
    rounds = StepModel(device, LLAMA, together=True).times(decode(32, 2000), 3, shares)
    assert rounds.total_s[0] == StepModel(device, LLAMA, together=True).times(
        decode(32, 2000), 1, shares
    ).total_s[0]  # fmt: skip


def test_a_bare_memory_cannot_serve() -> None:
    with pytest.raises(DescriptionError, match="needs an accelerator"):
        StepModel(load_device("lpddr5-6400-x16"), LLAMA)

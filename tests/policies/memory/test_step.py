"""Is a step as long as the roofline says?"""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.engines.scheduled_step import Chunk, Step
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency, StepTimes

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


def test_prefill_counts_the_triangle_of_attention_and_one_head() -> None:
    steps = StepModel(load_device("mlu370-x4", [*BARE, "compute.overlap=sum"]), LLAMA)
    split = [Chunk(0, 0, 600, False), Chunk(0, 600, 400, True)]
    parts = [
        steps.times(chunks(chunk), 1, Efficiency()).prefill_s
        for chunk in (*split, Chunk(0, 0, 1000, True))
    ]
    flops = 1000 * LLAMA.layer_flops + 1000 * 1001 // 2 * LLAMA.attention_flops + LLAMA.head_flops
    kv_s = 1000 * LLAMA.kv_token_bytes / steps.bandwidth
    assert parts[2] == pytest.approx(flops / 96e12 + kv_s)
    assert parts[0] + parts[1] == pytest.approx(parts[2] + 600 / 1000 * kv_s)


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


@pytest.mark.parametrize(("tokens", "hidden"), [(128, True), (300, False)])
def test_a_chunk_hides_behind_the_stream_of_the_weights(tokens: int, hidden: bool) -> None:
    # mlu370-x4: 13.2 GB of weights take 43.0 ms, the matrix products of a token 0.138 ms
    steps = StepModel(load_device("mlu370-x4", BARE), LLAMA)
    times = steps.times(chunks(Chunk(9, 0, tokens, False), batch=32), 1, Efficiency())
    linear_s = (32 * (LLAMA.layer_flops + LLAMA.head_flops) + tokens * LLAMA.layer_flops) / 96e12
    weights_s = LLAMA.step_weight_bytes / steps.bandwidth
    moved_s = tokens * LLAMA.kv_token_bytes / steps.bandwidth
    triangle_s = tokens * (tokens + 1) // 2 * LLAMA.attention_flops / 96e12
    assert times.weights_s == pytest.approx(weights_s)
    assert (linear_s < weights_s) == hidden
    assert times.prefill_s == pytest.approx(max(linear_s - weights_s, 0) + max(moved_s, triangle_s))
    assert times.total_s[0] == pytest.approx(
        times.weights_s + times.attention_s[0] + times.prefill_s
    )


def test_cores_convert_the_formats_that_an_engine_in_the_dma_path_converts_for_nothing() -> None:
    def quantised(card: str, kv: str, step: Step, *sets: str) -> StepTimes:
        device = load_device(card, [*BARE, *sets])
        return StepModel(device, LLAMA.stored_as(None, kv)).times(step, 1, Efficiency())

    numbers, step, slow = 2 * 32 * 4096, decode(8, 1024), "compute.vector=1TFLOPS"
    found = quantised("a100-80gb", "qserve", step, slow).attention_s
    flops_s = (8 * 1024 + 8) * LLAMA.attention_flops / 312e12
    assert found == pytest.approx(flops_s + numbers * (8 * 1024 * 4 + 8 * 8) / 1e12)
    moved = (8 * 1024 + 8) * LLAMA.stored_as(None, "oaken").kv_token_bytes
    found = quantised("oaken-lpddr", "oaken", step, slow).attention_s
    assert found == pytest.approx(moved / 1092.2667e9, rel=1e-6)
    chunk = chunks(Chunk(0, 100, 50, True))
    once, twice = (
        quantised("a100-80gb", "qserve", chunk, f"compute.vector={many}TFLOPS").prefill_s
        for many in (1, 2)
    )
    assert once - twice == pytest.approx(numbers * (100 * 4 + 50 * 8) * 0.5e-12)


def test_a_bare_memory_cannot_serve() -> None:
    with pytest.raises(DescriptionError, match="needs an accelerator"):
        StepModel(load_device("lpddr5-6400-x16"), LLAMA)

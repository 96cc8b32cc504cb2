"""Is a step as long as the roofline says?"""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.description import DescriptionError
from hwmodel.device import load_device
from hwmodel.transformer import load_model
from policies.allocator import Migration
from policies.engine import Chunk, Step
from policies.step import Efficiency, StepModel

BARE = [
    "compute.prefill_efficiency=1.0", "compute.decode_efficiency=1.0",
    "compute.step_overhead=0us", "compute.layer_overhead=0us",
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


def test_the_peak_is_the_advertised_one() -> None:
    assert StepModel(load_device("a100-80gb"), LLAMA).bandwidth == pytest.approx(2039e9, rel=1e-5)
    assert StepModel(load_device("mlu370-x4"), LLAMA).bandwidth == pytest.approx(307.2e9)


def test_a_big_batch_is_bound_by_compute() -> None:
    device = load_device("mlu370-x4", [*BARE, "compute.fp16=1TFLOPS"])
    times = StepModel(device, LLAMA).times(decode(64, 10), 1, Efficiency())
    assert times.weights_s == pytest.approx(64 * (LLAMA.layer_flops + LLAMA.head_flops) / 1e12)


def test_sum_adds_what_max_hides() -> None:
    both = [
        StepModel(load_device("mlu370-x4", [*BARE, f"compute.overlap={way}"]), LLAMA)
        .times(decode(8, 500), 1, Efficiency())
        .total_s[0]
        for way in ("max", "sum")
    ]
    flops = 8 * (LLAMA.layer_flops + LLAMA.head_flops) + 8 * 501 * LLAMA.attention_flops
    assert both[1] - both[0] == pytest.approx(flops / 96e12)


def test_steps_alike_differ_by_a_token_of_context() -> None:
    steps = StepModel(load_device("mlu370-x4"), LLAMA)
    together = steps.times(decode(5, 100), 4, Efficiency()).total_s
    singly = [steps.times(decode(5, 100 + i), 1, Efficiency()).total_s[0] for i in range(4)]
    assert together.tolist() == singly


def test_overheads_are_per_step_and_layer() -> None:
    times = StepModel(load_device("mlu370-x4"), LLAMA).times(decode(1, 1), 1, Efficiency())
    assert times.overhead_s == pytest.approx(335e-6 + 32 * 12e-6)


def test_prefill_counts_the_triangle_of_attention_and_one_head() -> None:
    steps = StepModel(load_device("mlu370-x4", BARE), LLAMA)
    first, second = Chunk(0, 0, 600, False), Chunk(0, 600, 400, True)
    whole = Chunk(0, 0, 1000, True)
    parts = [
        steps.times(Step(np.zeros(0, int), 0, [c], [], 0, ""), 1, Efficiency()).prefill_s
        for c in (first, second, whole)
    ]
    flops = 1000 * LLAMA.layer_flops + 1000 * 1001 // 2 * LLAMA.attention_flops + LLAMA.head_flops
    assert parts[2] == pytest.approx(flops / 96e12)
    assert parts[0] + parts[1] == pytest.approx(parts[2])


def test_a_migration_reads_and_writes_every_token() -> None:
    steps = StepModel(load_device("mlu370-x4", BARE), LLAMA)
    moved = Step(np.zeros(0, int), 0, [], [Migration(0, 0, 100, 70, 80)], 0, "")
    times = steps.times(moved, 1, Efficiency(migration=0.5))
    assert times.migration_s == pytest.approx(2 * 70 * LLAMA.kv_token_bytes / 307.2e9 / 0.5)


@pytest.mark.parametrize("phase", ["weights", "attention"])
def test_half_the_efficiency_is_twice_the_memory_time(phase: str) -> None:
    steps = StepModel(load_device("mlu370-x4", BARE), LLAMA)
    full = steps.times(decode(4, 1000), 1, Efficiency())
    half = steps.times(decode(4, 1000), 1, Efficiency()._replace(**{phase: 0.5}))
    name = f"{phase}_s"
    assert np.all(getattr(half, name) == 2 * np.asarray(getattr(full, name)))


def test_a_bare_memory_cannot_serve() -> None:
    with pytest.raises(DescriptionError, match="needs an accelerator"):
        StepModel(load_device("lpddr5-6400-x16"), LLAMA)

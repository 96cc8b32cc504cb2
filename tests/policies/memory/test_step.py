"""Is a step as long as the roofline says?"""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.allocators.capabilities import Migration
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


def test_the_peak_is_the_advertised_one() -> None:
    assert StepModel(load_device("a100-80gb"), LLAMA).bandwidth == pytest.approx(2039e9, rel=1e-5)
    assert StepModel(load_device("mlu370-x4"), LLAMA).bandwidth == pytest.approx(307.2e9)


def test_a_big_batch_is_bound_by_compute() -> None:
    device = load_device("mlu370-x4", [*BARE, "compute.fp16=1TFLOPS"])
    times = StepModel(device, LLAMA).times(decode(64, 10), 1, Efficiency())
    assert times.weights_s == pytest.approx(64 * (LLAMA.layer_flops + LLAMA.head_flops) / 1e12)


def test_sum_adds_what_max_hides_and_a_share_a_part_of_it() -> None:
    both = [
        StepModel(load_device("mlu370-x4", [*BARE, f"compute.overlap={way}"]), LLAMA)
        .times(decode(8, 500), 1, Efficiency())
        .total_s[0]
        for way in ("max", "sum", "0.46")
    ]
    flops = 8 * (LLAMA.layer_flops + LLAMA.head_flops) + 8 * 501 * LLAMA.attention_flops
    assert both[1] - both[0] == pytest.approx(flops / 96e12)
    assert both[2] - both[0] == pytest.approx(0.54 * flops / 96e12)


def test_steps_alike_differ_by_a_token_of_context() -> None:
    steps = StepModel(load_device("mlu370-x4"), LLAMA)
    together = steps.times(decode(5, 100), 4, Efficiency()).total_s
    singly = [steps.times(decode(5, 100 + i), 1, Efficiency()).total_s[0] for i in range(4)]
    assert together.tolist() == singly


def test_overheads_are_per_step_and_layer() -> None:
    times = StepModel(load_device("mlu370-x4"), LLAMA).times(decode(1, 1), 1, Efficiency())
    assert times.overhead_s == pytest.approx(335e-6 + 32 * 12e-6)


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


def test_what_kernels_between_products_move_is_free_with_weights_or_with_compute() -> None:
    step = chunks(Chunk(0, 0, 1000, True))
    cards = [load_device("a100-80gb", [f"kernels.chunk_activations={n}"]) for n in (0, 1)]
    for free, costs in (((), True), (("weights",), False), (("compute",), False)):
        without, with_them = (
            StepModel(card, LLAMA, free=free).times(step, 1, Efficiency()).total_s[0]
            for card in cards
        )
        assert (with_them > without) == costs


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


@pytest.mark.parametrize(("part", "slower"), [("decode", 32), ("prefill", 300)])
def test_each_kind_of_token_has_its_own_efficiency(part: str, slower: int) -> None:
    step = chunks(Chunk(9, 0, 300, False), batch=32)
    full, half = (
        StepModel(load_device("mlu370-x4", [*BARE, f"compute.{part}_efficiency={share}"]), LLAMA)
        .times(step, 1, Efficiency(prefill=1e-3))  # the attention of the chunk waits for memory
        for share in (1.0, 0.5)
    )  # fmt: skip
    flops = slower * LLAMA.layer_flops + (32 * LLAMA.head_flops if part == "decode" else 0)
    assert half.total_s[0] - full.total_s[0] == pytest.approx(flops / 96e12)


def test_a_migration_reads_and_writes_every_token() -> None:
    steps = StepModel(load_device("mlu370-x4", BARE), LLAMA)
    moved = Step(np.zeros(0, int), 0, [], [Migration(0, 0, 100, 70, 80)], 0, "")
    times = steps.times(moved, 1, Efficiency(migration=0.5))
    assert times.migration_s == pytest.approx(2 * 70 * LLAMA.kv_token_bytes / 307.2e9 / 0.5)


@pytest.mark.parametrize("free", [("weights",), ("compute",)])
def test_a_step_without_its_weights_or_flops_moves_no_activations_of_chunks(
    free: tuple[str, ...],
) -> None:
    """What a chunk's products read and write beside their weights goes with them."""
    card = load_device("a100-80gb", ["kernels={class: ideal, chunk_activations: 1}"])
    model, step = load_model("llama-2-7b"), chunks(Chunk(0, 0, 512, True))
    found = [
        StepModel(load_device("a100-80gb", ["kernels={class: ideal}"]), model, free=free),
        StepModel(card, model, free=free),
    ]
    without, with_them = (each.times(step, 1, Efficiency()).total_s[0] for each in found)
    assert with_them == without
    whole = [StepModel(each, model).times(step, 1, Efficiency()).total_s[0]
             for each in (card, load_device("a100-80gb", ["kernels={class: ideal}"]))]  # fmt: skip
    assert whole[0] > whole[1]


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


def test_the_share_of_compute_tells_a_large_batch_from_a_small_one() -> None:
    steps = StepModel(load_device("a100-80gb"), LLAMA)
    small, large = (steps.times(decode(batch, 64), 1, Efficiency()) for batch in (4, 400))
    assert small.compute_s[0] == 0
    assert large.compute_s[0] == pytest.approx(large.weights_s)

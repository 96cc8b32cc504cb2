"""Is the time of a step what docs/memory-time.md says, each loss charged once?"""

from __future__ import annotations

import math
from typing import Any

import pytest

from hwmodel.specs.device import Device
from policies.allocators.allocator import Allocator
from policies.engines.scheduled_step import Step
from policies.memory.step_times import StepTimes
from policies.serving.recorder import Recorder
from policies.serving.serving import serve
from tests.policies.small import MODEL, FakeMemory, device, mixed, spec

STREAM = mixed(5)
SHARE = 0.5
OPTIONS = {"engine": {"max_model_len": 1024}}
_ROTATED = 2 * (MODEL.heads + MODEL.kv_heads) * MODEL.head_dim
ACTIVATIONS = 2 * MODEL.layers * (8 * MODEL.hidden + _ROTATED + 3 * MODEL.intermediate)
"""Bytes a token that norms, rotation and a gated MLP's activation move, in 16 bits."""


class Even(FakeMemory):
    """Gives SHARE of the peak whatever is asked."""

    def __call__(
        self, device: Device, d: Any, *, warmup_ns: float, measure_ns: float, **more: Any
    ) -> Any:
        found = super().__call__(device, d, warmup_ns=warmup_ns, measure_ns=measure_ns)
        found.gbps = SHARE * device.peak_gbps
        if math.isinf(measure_ns):
            found.elapsed_ns = found.total_bytes / found.gbps
        return found


def by_hand(card: Device, step: Step, share: float, indirection: float) -> float:
    """The formula of the page, seconds; `share` of the peak is the DRAM's."""
    assert card.accelerator is not None
    compute, law = card.accelerator.compute, card.accelerator.kernels
    bytes_s = share * card.accelerator.derate * card.peak_gbps * 1e9
    decode_s, prefill_s = (
        compute.peak(MODEL.weights) * part
        for part in (compute.decode_efficiency, compute.prefill_efficiency)
    )

    attend_s = compute.peak(MODEL.weights) * law.attention_efficiency

    def phase(flops_s: float, moved: float, share: float) -> float:
        parts = flops_s, moved / (share * bytes_s)
        return max(parts) + (1 - compute.overlap) * min(parts)

    tokens = sum(chunk.tokens for chunk in step.chunks)
    ends = sum(chunk.last for chunk in step.chunks)
    linear = step.tokens * (MODEL.layer_flops + MODEL.head_flops) / decode_s
    linear += (tokens * MODEL.layer_flops + ends * MODEL.head_flops) / prefill_s
    rows = step.tokens + tokens
    linear *= -(-rows // law.tile) * law.tile / rows
    if step.chunks:
        indirection *= law.beside_chunk
    seen = step.context + step.tokens
    triangles = sum(c.tokens * c.start + c.tokens * (c.tokens + 1) // 2 for c in step.chunks)
    pairs = triangles + law.chunk_keys * tokens
    chunks_s = prefill_s * law.chunk_attention
    stored = sum(chunk.start for chunk in step.chunks)
    kv = MODEL.kv_token_bytes
    each_ns = law.products * law.product + law.kernels * law.kernel + law.attention
    overhead_ns = law.host + MODEL.layers * each_ns
    return (
        float(overhead_ns) * 1e-9
        + phase(linear, MODEL.step_weight_bytes, law.weights)
        + indirection * phase(seen * MODEL.attention_flops / attend_s, seen * kv, law.kv)
        + phase(pairs * MODEL.attention_flops / chunks_s, (stored + tokens) * kv, law.kv)
        + law.chunk_activations * tokens * ACTIVATIONS / (law.weights * bytes_s)
    )


@pytest.mark.parametrize(
    ("overlap", "kernels"), [("max", "nvidia-hbm"), ("sum", "accelerator"), ("0.46", "nvidia-hbm")]
)
def test_a_step_takes_what_the_formula_says(overlap: str, kernels: str) -> None:
    short = (f"kernels={{class: {kernels}, host: 1us, product: 1us, kernel: 0.5us}}",)
    card = device(4096, "derate=0.8", f"compute.overlap={overlap}", *short)
    seen: list[tuple[float, float]] = []

    class Watch(Recorder):
        def step(
            self, now_s: float, seconds: float, step: Step, times: StepTimes, allocator: Allocator,
            replica: int,
        ) -> None:  # fmt: skip
            seen.append((float(times.total_s[0]), by_hand(card, step, SHARE, 1.25)))

    options = spec(
        memory={"fidelity": "full"}, policy={"name": "paged", "indirection": 1.25}, **OPTIONS
    )
    serve(card, MODEL, options, STREAM, seed=1, simulate=Even(), recorder=Watch())
    assert len(seen) > 50
    got, formula = zip(*seen, strict=True)
    assert got == pytest.approx(formula, rel=1e-12)

"""Models with sliding windows, served: what a step reads is a closed form, in time and streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwmodel.specs.device import load_device
from hwmodel.specs.kv_order import LAYOUTS
from hwmodel.specs.transformer import TransformerSpec, load_model
from policies.allocators.allocator import Demand, Limits
from policies.allocators.kv_apart import Apart
from policies.allocators.kv_groups import kv_groups
from policies.allocators.kv_layout import KvLayout
from policies.allocators.registry import POLICIES, build
from policies.engines.scheduled_step import Chunk, Step
from policies.memory import traffic
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from policies.predictors.prediction import Prediction
from tests.policies.small import WINDOWS

SERVED = ["gemma-3-12b", "gpt-oss-20b", "mistral-7b-v0.1"]
KINDS = [("paged", None), ("static", "ring"), ("static", "full"), ("ideal", None)]


def filled(
    model: TransformerSpec, policy: str, kv: str | None, lengths: list[int],
    layout_name: str = "layer_kv_token", apart: Apart | None = None,
) -> Any:  # fmt: skip
    """An allocator with requests of these lengths, in prefill chunks of 2,048 tokens."""
    given = {"name": policy} | ({} if kv is None else {"window_kv": kv})
    options = POLICIES[policy].Options.model_validate(given)
    groups = kv_groups(model, options.kv_of_windows)
    assert groups is not None
    layout = KvLayout(
        1 << 20, 1 << 19, groups.size, model.kv_heads, model.kv_head_bytes, LAYOUTS[layout_name],
        groups=groups, apart=apart,
    )  # fmt: skip
    limits = Limits(200, max(lengths) + 200, 2048)
    allocator = build(layout, len(lengths), limits, options)
    for request, length in enumerate(lengths):
        demand = Demand(length, 0, Prediction(1.0), output=200)
        assert allocator.reserve(request, demand, min(length, 2048))
        while allocator.stored[request] < length:
            more = min(length - int(allocator.stored[request]), 2048)
            assert allocator.grow(request, more)
    return allocator


def seen(model: TransformerSpec, tokens: int) -> int:
    """Sum over the layers of the last `tokens` tokens that a layer attends to."""
    assert model.window is not None
    windows = (model.window.of(layer) or tokens for layer in range(model.layers))
    return sum(min(tokens, window) for window in windows)


@pytest.mark.parametrize(("policy", "kv"), KINDS)
@pytest.mark.parametrize("name", SERVED)
def test_a_decode_step_moves_the_closed_form(name: str, policy: str, kv: str | None) -> None:
    model = load_model(name)
    lengths = [100, 1500, 4095, 6000]
    allocator = filled(model, policy, kv, lengths)
    decode = np.arange(len(lengths))
    assert allocator.headroom(decode, 1)
    allocator.advance(decode, 1)
    wanted = model.kv_layer_bytes * sum(seen(model, length + 1) for length in lengths)
    layers = [traffic.attention(allocator, decode, layer) for layer in range(model.layers)]
    assert sum(int(extents.size.sum()) for extents in layers) == wanted
    written = sum(int(extents.size[extents.write].sum()) for extents in layers)
    assert written == len(lengths) * model.kv_token_bytes
    step = Step(
        decode, sum(lengths), [], [], 0, "offered_load", lengths=np.array(lengths, np.int64)
    )
    device = load_device("a100-80gb", ["kernels={class: ideal}"])
    steps = StepModel(device, model, groups=allocator.layout.groups)
    times = steps.times(step, 1, Efficiency())
    assert times.attention_s[0] * steps.bandwidth == pytest.approx(wanted, rel=1e-12)
    flops = wanted // model.kv_layer_bytes * model.attention.flops("decode").pair
    assert model.layers * allocator.layout.groups.read(step.lengths) == pytest.approx(
        flops / model.attention.flops("decode").pair - len(lengths) * model.layers
    )


@pytest.mark.parametrize(("policy", "kv"), KINDS)
def test_a_chunk_moves_what_its_window_reaches(policy: str, kv: str | None) -> None:
    for start, tokens in ((0, 30), (0, 120), (35, 20), (100, 90)):
        allocator = filled(WINDOWS, policy, kv, [start + tokens] if not start else [start])
        if start:
            assert allocator.grow(0, tokens)
        chunk = Chunk(0, start, tokens, True)
        pairs = read = written = 0
        for layer in range(WINDOWS.layers):
            window = (WINDOWS.window.of(layer) if WINDOWS.window else None) or 10**6
            pairs += sum(min(start + nth, window) for nth in range(1, tokens + 1))
            read += min(start, window - 1)
            written += min(tokens, window) if kv == "ring" or policy == "ideal" else tokens
        extents = [traffic.prefill(allocator, [chunk], n) for n in range(WINDOWS.layers)]
        found = [sum(int(e.size[e.write == w].sum()) for e in extents) for w in (False, True)]
        each = WINDOWS.kv_layer_bytes
        assert found == [read * each, written * each]
        span = allocator.layout.groups.span(start, tokens)
        assert np.array(span) * WINDOWS.layers == pytest.approx([pairs, read, written])

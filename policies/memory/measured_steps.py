"""Step times of the model as a measurement has them: one step, nothing else running.

A decode step is simulated as `sweeps` would: weights' efficiency from the DRAM model, KV's from one
whole layer of the batch, in blocks of 16 tokens placed by an allocator in use.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from hwmodel.description.description import Strict
from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec, shard
from policies.allocators.allocator import Limits
from policies.allocators.kv_layout import kv_layout
from policies.allocators.paged import PagedAllocator, PagedOptions
from policies.engines.engine import Chunk, Step
from policies.memory import traffic
from policies.memory.batch import BatchSpec, place
from policies.memory.fidelity import FidelitySpec
from policies.memory.probe import weights_efficiency
from policies.memory.probe_cache import simulate_once
from policies.memory.step import Efficiency, StepModel

Count = Annotated[int, Field(ge=1)]


class Decode(Strict):
    """A decode step of a batch."""

    batch: Count
    context: Count
    """Mean tokens of a sequence while it was measured."""
    cards: Count = 1


class Prefill(Strict):
    """The time to the first token of one prompt."""

    tokens: Count


class StepTime(NamedTuple):
    """The model's time of a step, and what the step has to move or compute at least."""

    ms: float
    peak_ms: float
    """At the peak of the memory's bandwidth (decode) or of the FLOPs (prefill)."""


def decode_time(device: Device, model: TransformerSpec, item: Decode) -> StepTime:
    """A decode step on cards of which each holds a share of the model."""
    part = shard(model, item.cards)
    steps = StepModel(device, part, item.cards)
    step = Step(np.arange(item.batch), item.batch * item.context, [], [], 0, "offered_load")
    efficiency = Efficiency(_weights(device, part, item.batch), _attention(device, part, item))
    ms = float(steps.times(step, 1, efficiency).total_s[0]) * 1e3
    moved = steps.weight_bytes(step) + item.batch * (item.context + 1) * part.kv_token_bytes
    return StepTime(ms, moved / steps.bandwidth * 1e3)


def prefill_time(device: Device, model: TransformerSpec, item: Prefill) -> StepTime:
    """The whole prompt in one step."""
    steps = StepModel(device, model)
    chunks = [Chunk(0, 0, item.tokens, True)]
    step = Step(np.zeros(0, np.int64), 0, chunks, [], 0, "offered_load")
    times = steps.times(step, 1, Efficiency(_weights(device, model, item.tokens)))
    attended = item.tokens * (item.tokens + 1) // 2
    pair = model.attending("prefill").pair
    flops = item.tokens * model.layer_flops + model.head_flops + attended * pair
    assert device.accelerator is not None
    peak_ms = flops / device.accelerator.compute.peak(model.weights) * 1e3
    return StepTime(float(times.total_s[0]) * 1e3, peak_ms)


def _weights(device: Device, model: TransformerSpec, tokens: int) -> float:
    return weights_efficiency(device, model, FidelitySpec(), simulate_once, tokens)


def _attention(device: Device, model: TransformerSpec, item: Decode) -> float:
    """Efficiency of one layer's KV read, of 0 to 1."""
    assert device.accelerator is not None
    batch = BatchSpec(sequences=item.batch, context=item.context, age=300)
    layout = kv_layout(device, model)
    limits = Limits(item.context, 2 * item.context)
    allocator = PagedAllocator(layout, batch.requests(), limits, PagedOptions())
    placed = place(allocator, batch, np.random.default_rng(0))
    dma = device.accelerator.dma
    reading = traffic.reading(device, model)
    extents = traffic.attention(allocator, placed, 0, reading)
    stream = traffic.deal(extents, dma.engines, reading.spread, dma.request)
    return simulate_once(device, stream).gbps / device.peak_gbps

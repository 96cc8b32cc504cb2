"""Step times against public measurements: what share of the peaks real systems reach.

A decode step is simulated as `sweeps` would: weights' efficiency from the DRAM model, KV's from one
whole layer of the batch, in blocks of 16 tokens placed by an allocator in use.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from hwmodel.description.description import Strict, find, load
from hwmodel.description.units import Nanoseconds
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.transformer import TransformerSpec, load_model, shard
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
    """A measured decode step."""

    batch: Count
    context: Count
    """Mean tokens of a sequence while it was measured."""
    cards: Count = 1
    time: Nanoseconds
    source: str
    note: str = ""


class Prefill(Strict):
    """The measured time to the first token of one prompt."""

    tokens: Count
    time: Nanoseconds
    source: str
    note: str = ""


class MeasurementSpec(Strict):
    """Public measurements of one model on one device, as `yaml/measurements/*.yaml` has them."""

    kind: Literal["measurement"]
    name: str
    summary: str
    sources: dict[str, str]
    device: str
    model: str
    decode: list[Decode] = []
    prefill: list[Prefill] = []


class Compared(NamedTuple):
    """A measurement beside the model's figure."""

    what: str
    source: str
    measured_ms: float
    model_ms: float
    share: float
    """Of a peak that the measurement reached: of the memory's bandwidth in decode, of the FLOPs in
    prefill; by the bytes and FLOPs that the model must move and compute."""

    @property
    def ratio(self) -> float:
        """The model's time over the measured one."""
        return self.model_ms / self.measured_ms


def load_measurements(name_or_path: str) -> MeasurementSpec:
    """Shipped measurements by name, or a YAML file. Raises DescriptionError."""
    return load(find("measurements", name_or_path)).build(MeasurementSpec)


def compare(spec: MeasurementSpec) -> list[Compared]:
    """Every measurement beside the model, in the file's order. Raises DescriptionError."""
    device, model = load_device(spec.device), load_model(spec.model)
    found = [_decode(device, model, item) for item in spec.decode]
    return found + [_prefill(device, model, item) for item in spec.prefill]


def _decode(device: Device, model: TransformerSpec, item: Decode) -> Compared:
    part = shard(model, item.cards)
    steps = StepModel(device, part, item.cards)
    step = Step(np.arange(item.batch), item.batch * item.context, [], [], 0, "offered_load")
    efficiency = Efficiency(_weights(device, part), _attention(device, part, item))
    model_ms = float(steps.times(step, 1, efficiency).total_s[0]) * 1e3
    moved = part.step_weight_bytes + item.batch * (item.context + 1) * part.kv_token_bytes
    share = moved / (item.time * 1e-9) / steps.bandwidth
    cards = f", {item.cards} cards" if item.cards > 1 else ""
    what = f"decode, batch {item.batch}, context {item.context:,}{cards}"
    return Compared(what, item.source, item.time * 1e-6, model_ms, share)


def _prefill(device: Device, model: TransformerSpec, item: Prefill) -> Compared:
    steps = StepModel(device, model)
    chunks = [Chunk(0, 0, item.tokens, True)]
    step = Step(np.zeros(0, np.int64), 0, chunks, [], 0, "offered_load")
    times = steps.times(step, 1, Efficiency(_weights(device, model)))
    attended = item.tokens * (item.tokens + 1) // 2
    flops = item.tokens * model.layer_flops + model.head_flops + attended * model.attention_flops
    assert device.accelerator is not None
    share = flops / (item.time * 1e-9) / device.accelerator.compute.peak(model.weights)
    what = f"prefill, {item.tokens:,} tokens"
    return Compared(what, item.source, item.time * 1e-6, float(times.total_s[0]) * 1e3, share)


def _weights(device: Device, model: TransformerSpec) -> float:
    return weights_efficiency(device, model, FidelitySpec(), simulate_once)


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

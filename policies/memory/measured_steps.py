"""Step times of the model as a measurement has them: one step, nothing else running.

A decode step is simulated as `sweeps` would: weights' efficiency from the DRAM model, KV's from one
whole layer of the batch, placed as the measured software does it: vLLM's way, in blocks of 16
tokens by an allocator in use, unless a `Runtime` says otherwise. A given memory has its own
efficiency for both.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from hwmodel.description.description import Strict, checked
from hwmodel.specs.device import Device
from hwmodel.specs.number_format import KvFormat, WeightFormat
from hwmodel.specs.transformer import TransformerSpec, shard
from policies.allocators.allocator import Limits
from policies.allocators.kv_groups import kv_groups
from policies.allocators.kv_layout import kv_layout
from policies.allocators.registry import POLICIES, PolicySpec, default_policy
from policies.engines.scheduled_step import Chunk, Step
from policies.memory import dealing, traffic
from policies.memory.batch import BatchSpec, place
from policies.memory.fidelity import FidelitySpec
from policies.memory.probe import weights_efficiency
from policies.memory.probe_cache import simulate_once
from policies.memory.routing import Routing, RoutingSpec
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency

Count = Annotated[int, Field(ge=1)]


class Runtime(Strict):
    """The software that was measured, as far as it decides a decode step."""

    policy: PolicySpec = default_policy()
    """The allocator, as far as it decides where KV lies."""
    age: Annotated[int, Field(ge=0)] = 300
    """See `BatchSpec.age`; 0: sequences lie in the order in which they came."""
    pad: Count | None = None
    """A sequence's longest length is its context up to the next multiple of so many tokens. None:
    twice the context."""
    program: str | None = None
    """Of the device's class of kernels. None: the usual one of the class."""
    skew: Annotated[float, Field(ge=0, le=4)] = 0.0
    """Of the routing (`RoutingSpec`): benchmarks that draw tokens at random route by a power."""


class Decode(Strict):
    """A decode step of a batch, in ms; with `since` the rate of the KV that it reads beyond a step
    of a shorter context, in GB/s."""

    batch: Count
    """Sequences."""
    context: Count
    """Mean tokens of a sequence while it was measured."""
    cards: Count = 1
    """That share the model."""
    weights: WeightFormat | None = None
    """Format of the weights; None: the model's."""
    kv: KvFormat | None = None
    """Format of the KV."""
    since: Count | None = None
    """Of a figure in GB/s: bytes of KV over the time beyond that at this context."""

    @checked
    def _longer(self) -> None:
        if self.since is not None and self.since >= self.context:
            raise ValueError("since: expected a shorter context")


class Prefill(Strict):
    """The time to the first token of one prompt."""

    tokens: Count
    """Of the prompt."""
    weights: WeightFormat | None = None
    """Format of the weights; None: the model's."""


class StepTime(NamedTuple):
    """The model's time of a step, and what the step has to move or compute at least."""

    ms: float
    peak_ms: float
    """At the peak of the memory's bandwidth (decode) or of the FLOPs (prefill)."""


def decode_time(device: Device, model: TransformerSpec, item: Decode, runtime: Runtime) -> StepTime:
    """A decode step on cards of which each holds a share of the model; `device` has the kernels of
    the program."""
    part = shard(model.stored_as(item.weights, item.kv), item.cards)
    context = item.context
    if part.window is not None:  # as many tokens in every layer as its windows keep of them
        held = part.kv_held_bytes(context)
        part = part.model_copy(update={"window": None})
        context = max(round(held / part.kv_token_bytes), 1)
    routing = None
    if part.experts is not None:
        routing = Routing(part.experts, RoutingSpec(skew=runtime.skew))
    steps = StepModel(device, part, item.cards, routing=routing)
    step = Step(np.arange(item.batch), item.batch * context, [], [], 0, "offered_load")
    efficiency = Efficiency(
        _weights(device, part, item.batch), _attention(device, part, item, runtime)
    )
    times = steps.times(step, 1, efficiency)
    return StepTime(float(times.total_s[0]) * 1e3, times.work.moved / steps.bandwidth * 1e3)


def kv_rate(device: Device, model: TransformerSpec, item: Decode, runtime: Runtime) -> float:
    """GB/s at which the KV between two contexts is read: its bytes over the steps' difference."""
    assert item.since is not None
    long, short = (
        decode_time(device, model, item.model_copy(update={"context": context}), runtime).ms
        for context in (item.context, item.since)
    )
    token = shard(model.stored_as(item.weights, item.kv), item.cards).kv_token_bytes
    return item.batch * (item.context - item.since) * token / ((long - short) * 1e6)


def prefill_time(device: Device, model: TransformerSpec, item: Prefill) -> StepTime:
    """The whole prompt in one step; `device` has the kernels of the program."""
    model = model.stored_as(item.weights, None)
    steps = StepModel(device, model, groups=kv_groups(model, "full"))
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
    if device.given is not None:
        return device.given.of_weights
    return weights_efficiency(device, model, FidelitySpec(), simulate_once, tokens)


def _attention(device: Device, model: TransformerSpec, item: Decode, runtime: Runtime) -> float:
    """Efficiency of one layer's KV read, of 0 to 1."""
    if device.given is not None:
        return device.given.efficiency
    assert device.accelerator is not None
    batch = BatchSpec(
        policy=runtime.policy, sequences=item.batch, context=item.context, age=runtime.age
    )
    layout = kv_layout(device, model)
    pad = runtime.pad
    longest = 2 * item.context if pad is None else -(-(item.context + 1) // pad) * pad
    limits = Limits(item.context, longest)
    allocator = POLICIES[batch.policy.name](layout, batch.requests(), limits, batch.policy)
    placed = place(allocator, batch, np.random.default_rng(0))
    dma = device.accelerator.dma
    reading = traffic.reading(device, model)
    extents = traffic.attention(allocator, placed, 0, reading)
    stream = dealing.deal(extents, dma.engines, reading.spread, dma.request, reading.drift)
    return simulate_once(device, stream).gbps / device.peak_gbps * device.derate

"""The serving loop: requests in, metrics out.

Between two events (arrival, end, growth that could fail, bucket refresh, migration, probe) steps
are alike, and they are advanced together with the very numbers that single steps would have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from hwmodel.description import DescriptionError, Strict
from hwmodel.device import Device
from hwmodel.transformer import TransformerSpec, load_model
from policies.allocator import Allocator, Limits
from policies.engine import Engine, EngineSpec
from policies.fidelity import FidelitySpec, Memory, Simulate, memory_model
from policies.kv_layout import KvOrder, kv_layout
from policies.metrics import Metrics
from policies.paged import PagedOptions
from policies.predictor import PredictorSpec, predict
from policies.registry import POLICIES, PolicySpec
from policies.requests import FloatArray, IntArray, Requests
from policies.step import StepModel

__all__ = ["ServingResult", "ServingSpec", "load_model", "serve"]

MOST_ROUNDS = 1 << 14
"""Steps advanced together at most, so that their times stay a small array."""


class ServingSpec(Strict):
    """How requests are served."""

    model: str
    """A shipped model, or the path of one (resolved by the caller with `load_model`)."""
    policy: PolicySpec = PagedOptions()
    engine: EngineSpec = EngineSpec()
    predictor: PredictorSpec = PredictorSpec()
    memory: FidelitySpec = FidelitySpec()
    kv_layout: KvOrder = "layer_kv_token"
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of the capacity for weights and KV (vLLM's default)."""
    advance_together: bool = True
    """False: one step at a time, for tests; the results are the same."""


@dataclass(frozen=True, eq=False)
class ServingResult:
    """`metrics` is plain JSON data. Times of each request in seconds, nan where it was dropped."""

    metrics: dict[str, Any]
    first_token_s: FloatArray
    finish_s: FloatArray


def serve(
    device: Device,
    model: TransformerSpec,
    spec: ServingSpec,
    requests: Requests,
    *,
    seed: int,
    warmup_requests: int = 0,
    progress: Callable[[int, int], None] | None = None,
    simulate: Simulate | None = None,
) -> ServingResult:
    """Serve `requests` on `device` until the last has its last token.

    warmup_requests: how many requests at the start do not count.
    progress: called with (ended, all) whenever requests ended.
    simulate: instead of `hwmodel.memory.simulate_system`, for tests.
    Raises DescriptionError if the model, or a request, can never fit, or if all is warm-up.
    """
    layout = kv_layout(device, model, spec.gpu_memory_utilization, spec.kv_layout)
    outputs = np.minimum(requests.output_tokens, spec.engine.max_tokens or np.iinfo(np.int64).max)
    limits = Limits(
        int(spec.engine.max_tokens or outputs.max(initial=1)),
        min(spec.engine.max_model_len or model.max_position, model.max_position),
    )
    allocator = POLICIES[spec.policy.name](layout, len(requests), limits, spec.policy)
    admitted = _admissible(spec, allocator, limits, requests.prompt_tokens, outputs)
    if warmup_requests and warmup_requests >= len(admitted):
        raise DescriptionError(
            f"a warm-up of {warmup_requests} requests leaves none of {len(admitted)} to be counted"
        )
    predicted = predict(spec.predictor, outputs, seed)
    engine = Engine(
        spec.engine, allocator, requests.prompt_tokens, outputs, predicted, spec.predictor.sigma
    )
    steps = StepModel(device, model)
    memory = memory_model(spec.memory, device, model, layout, seed, simulate)
    metrics = Metrics(requests, outputs, warmup_requests)
    _run(engine, steps, memory, metrics, admitted, spec.advance_together, progress)
    figures = metrics.figures(engine, model.kv_token_bytes, layout.slots)
    figures["dropped"] = len(requests) - len(admitted)
    figures["cut_outputs"] = int((outputs < requests.output_tokens).sum())
    figures["policy"] = allocator.report()
    figures["memory"] = memory.report(metrics.moved_bytes(model))
    figures["energy"] = metrics.energy(device, model, memory.transfers())
    figures["seed"] = seed
    return ServingResult(figures, metrics.first_s, metrics.end_s)


def _admissible(
    spec: ServingSpec, allocator: Allocator, limits: Limits, prompt: IntArray, output: IntArray
) -> IntArray:
    """Indices of the requests that can finish.

    Raises DescriptionError for the others, unless they are to be dropped.
    """
    wanted = allocator.needs(prompt, output)
    long = prompt + output > limits.max_model_len
    bad = long | (wanted > allocator.reach)
    if bad.any() and spec.engine.too_long == "error":
        worst = int(np.flatnonzero(bad)[0])
        size = f"request {worst} ({prompt[worst]} prompt + {output[worst]} output tokens)"
        count = (
            f"{int(bad.sum())} of {len(bad)} requests can never be served, the first is {size}: "
        )
        if long[worst]:
            why = f"longer than max_model_len, {limits.max_model_len} tokens"
        else:
            why = (
                f"policy {spec.policy.name} may need {wanted[worst]} token slots for it, and can "
                f"give one request {allocator.reach} of the device's {allocator.slots}"
            )
        raise DescriptionError(count + why + "; shorten them or set engine.too_long: drop")
    return np.flatnonzero(~bad)


def _run(
    engine: Engine,
    steps: StepModel,
    memory: Memory,
    metrics: Metrics,
    admitted: IntArray,
    together: bool,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Advance from event to event until every admitted request has ended."""
    arrivals = metrics.arrival_s[admitted].tolist()
    ids = admitted.tolist()
    now, arrived = 0.0, 0
    while metrics.ended < len(ids):
        while arrived < len(ids) and arrivals[arrived] <= now:
            engine.waiting.append(ids[arrived])
            arrived += 1
        if not engine.waiting and not len(engine.running):
            metrics.idle(arrivals[arrived] - now)
            now = arrivals[arrived]
            continue
        if engine.waiting or arrived < len(ids):
            metrics.saturated(now)
        engine.allocator.clock(now)
        step = engine.schedule()
        efficiency = memory.observe(step, engine)
        rounds = 1
        if together:
            rounds = engine.rounds(step, min(MOST_ROUNDS, memory.rounds_to_probe))
        times = steps.times(step, rounds, efficiency)
        ends = np.cumsum(np.concatenate(([now], times.total_s)))
        event = engine.allocator.due_s
        if not engine.waiting and arrived < len(ids):
            event = min(event, arrivals[arrived])
        if rounds > 1 and event < ends[rounds]:  # a step that starts at or after an event sees it
            rounds = min(rounds, int(np.searchsorted(ends[:-1], event)))
            times = times.first(rounds)
        engine.repeat(step, rounds - 1)
        memory.passed(rounds)
        now = float(ends[rounds])
        metrics.steps(step, times, engine.allocator, engine.running)
        prefilled, ended = engine.complete(step, rounds)
        for request in prefilled:
            if np.isnan(metrics.first_s[request]):
                metrics.first_s[request] = now
        if ended:
            if metrics.end(ended, now):
                memory.mark()
            if progress is not None:
                progress(metrics.ended, len(ids))

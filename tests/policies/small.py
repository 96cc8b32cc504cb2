"""A small model on a real accelerator, cut down to a given number of token slots."""

from __future__ import annotations

import functools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from bankwise.conservation import Auditor, watched_links
from hwmodel.specs.attention import AttentionWindow, LatentAttention
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.mlp import ExpertsSpec
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Demand
from policies.allocators.hybrid import Unified
from policies.allocators.kv_layout import KV_ALIGN_BYTES
from policies.allocators.paged import PagedAllocator
from policies.predictors.prediction import Prediction
from policies.requests.requests import Requests
from policies.serving.replica import Replica
from policies.serving.serving import ServingResult, serve
from policies.serving.serving_spec import ServingSpec
from policies.serving.unit import Unit

MODEL = TransformerSpec(
    kind="model", name="small", layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16,
    intermediate=128, vocabulary=100, max_position=4096, qkv_bias=False, tied_embeddings=False,
)  # fmt: skip
"""256 bytes of KV a token; weights below 2 MiB."""
LATENT = TransformerSpec(
    kind="model",
    name="small-latent",
    layers=2,
    hidden=64,
    heads=4,
    kv_heads=1,
    head_dim=64,
    intermediate=128,
    vocabulary=100,
    max_position=4096,
    qkv_bias=False,
    tied_embeddings=False,
    latent=LatentAttention(
        q_lora_rank=32, kv_lora_rank=48, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=16
    ),
)
"""256 bytes of KV a token: one vector of 64 numbers in each layer."""
EXPERTS = MODEL.model_copy(
    update={
        "name": "small-experts",
        "layers": 3,
        "experts": ExpertsSpec(
            count=16, per_token=2, intermediate=32, shared_intermediate=64, first_dense_layers=1
        ),
    }
)
"""384 bytes of KV a token; 16 experts of 12,288 bytes in the second and third layer."""

WINDOWS = MODEL.model_copy(
    update={
        "name": "small-windows",
        "layers": 6,
        "window": AttentionWindow(tokens=40, pattern=["window", "window", "full"]),
    }
)
"""768 bytes of KV a token; four layers of six attend to the last 40 tokens."""


@functools.cache
def device(slots: int, *overrides: str) -> Device:
    """mlu370-x4 with room for `slots` token slots (a multiple of 64) of MODEL, all memory used and
    nothing lost on the way, nor to refreshes, which streams as short as MODEL's meet by chance."""
    capacity = KV_ALIGN_BYTES + slots * MODEL.kv_token_bytes
    settings = [f"capacity={capacity}B", "derate=1", "controller.refresh=none"]
    return load_device("mlu370-x4", [*settings, *overrides])


def requests(arrival_s: Any, prompt: Any, output: Any) -> Requests:
    count = len(arrival_s)
    return Requests(
        np.array(arrival_s, np.float64),
        np.broadcast_to(np.array(prompt, np.int64), count).copy(),
        np.broadcast_to(np.array(output, np.int64), count).copy(),
    )


def spec(**changes: Any) -> ServingSpec:
    """Paged, efficiency 1, no memory for activations; `changes` are keys of a description, and
    `advance_together`: False counts each step alone."""
    base: dict[str, Any] = {
        "model": "small", "gpu_memory_utilization": 1.0, "activation_bytes": "0B",
        "memory": {"efficiency": 1.0},
    }  # fmt: skip
    together = changes.pop("advance_together", True)
    made = ServingSpec.model_validate({**base, **changes})
    return made if together else made.one_by_one()


def run(slots: int, stream: Requests, seed: int = 1, **changes: Any) -> ServingResult:
    warmup = changes.pop("warmup_requests", 0)
    simulate = changes.pop("simulate", None)
    model, watchers = changes.pop("shape", MODEL), changes.pop("watchers", ())
    return serve(
        device(slots), model, spec(**changes), stream,
        seed=seed, warmup_requests=warmup, simulate=simulate, watchers=watchers,
    )  # fmt: skip


class Audited:
    """A run in which every request ends, and nothing is lost; its nodes, and all that landed."""

    def __init__(self, slots: int, stream: Requests, seed: int = 1, **changes: Any) -> None:
        auditor = Auditor()
        with watched_links() as links:
            self.result = run(slots, stream, seed, watchers=[auditor], **changes)
            assert [*auditor.breaches(), *links.breaches()] == []
        self.metrics = self.result.metrics
        self.nodes = auditor.simulation.nodes
        self.replicas = [each for node in self.nodes for each in (node.own or node.replicas)]
        self.came = [each for each in links.put.values() if each.landed_s < math.inf]


def assert_held(allocator: PagedAllocator, pages: Unified, lengths: list[int]) -> None:
    """An allocator takes as many requests of these lengths as vLLM counts, and is empty again."""
    layout, count = allocator.layout, 0
    while allocator.reserve(count, Demand(lengths[count], 0, Prediction(1.0)), lengths[count]):
        count += 1
    memory = layout.slots // pages.block * pages.page * pages.group
    assert count == pages.held(memory, lengths).requests
    for request in range(count):
        allocator.release(request)
    assert allocator.free_slots == (layout.slots // pages.block - 1) * pages.block


def serve_alone(replica: Replica) -> None:
    """All that arrives at a replica, without an event core around it."""
    unit = Unit([replica], [(0,)])
    while unit.next_s < math.inf:
        unit.begin(unit.next_s)
        if (ahead := unit.ahead) is not None:
            unit.ahead = None
            replica.end(*ahead.parts[0][1:], ahead.end_s)


def mixed(count: int, rate: float = 2000.0, seed: int = 0) -> Requests:
    """Poisson arrivals, lognormal lengths that fit 1024 tokens."""
    rng = np.random.default_rng(seed)
    return Requests(
        np.cumsum(rng.exponential(1 / rate, count)),
        np.clip(rng.lognormal(4.5, 0.8, count), 1, 500).astype(np.int64),
        np.clip(rng.lognormal(4.0, 0.9, count), 1, 400).astype(np.int64),
    )


class FakeMemory:
    """A stand-in for `simulate_system`: bandwidth falls with the number of descriptors."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __call__(
        self, device: Device, d: Any, *, warmup_ns: float, measure_ns: float, frames: Any = None,
        passed_ns: float = 0.0,
    ) -> Any:  # fmt: skip
        self.calls.append(d)
        assert d.start.min() >= 0 and (d.start + d.size).max() <= device.capacity_bytes
        assert d.size.min() >= 1 and d.engine.max() < device.accelerator.dma.engines
        total = int(d.size.sum())
        mean = total / len(d.size)
        lead = warmup_ns / (warmup_ns + 100) if warmup_ns else 1.0
        gbps = device.peak_gbps * mean / (mean + 4096) * lead
        if math.isinf(measure_ns):
            measure_ns = total / gbps
        return SimpleNamespace(
            gbps=gbps, elapsed_ns=measure_ns, bytes_measured=min(total, int(gbps * measure_ns)),
            total_bytes=total, bursts=total,
            finished=False, row_hits=3, row_misses=1, row_conflicts=0, commands={},
            simulated_ns=warmup_ns + measure_ns, active_ns=0.0, unmet="",
        )  # fmt: skip

"""What reading the KV of a decode batch costs on a device: one layer, every byte, no serving.

The batch lies where an allocator in use has put it (`policies.memory.batch`). One layer's attention
of one decode step (its KV read, a token a sequence written) is simulated from the first request to
the last data beat on all channels. With it come the times of the whole step, whose other phases are
`analytic`, and the first-order limit of what layout can cost there: the KV's share of the step
times (1 / efficiency - 1).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.description.units import Bytes
from hwmodel.specs.device import Device
from hwmodel.specs.kv_order import LAYOUTS, KvOrder
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Allocator, Limits
from policies.allocators.kv_layout import kv_layout
from policies.allocators.registry import POLICIES
from policies.engines.scheduled_step import Step
from policies.memory import dealing, traffic
from policies.memory.batch import BatchSpec, place
from policies.memory.fidelity import FidelitySpec
from policies.memory.mapped import mapped
from policies.memory.probe import weights_efficiency
from policies.memory.probe_cache import simulate_once
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from policies.requests.requests import IntArray
from sweeps.analyse.objective import KV_READ, Objective
from sweeps.plan.experiment import Described, Task, device_of, model_of, seed_of


class KvReadSpec(Described):
    """One batch on one device, as the `base` of a sweep with `measure: kv_read` describes it."""

    batch: BatchSpec = BatchSpec()
    kv_layout: KvOrder = LAYOUTS["layer_kv_token"]
    """Order of the KV in memory, as in `serving`."""
    kv_pad: Bytes = 0
    """Bytes between runs of KV, as in `serving`."""
    memory: FidelitySpec = FidelitySpec()
    """Of the weights' stream."""
    step: bool = False
    """The whole step as well: its time, the KV's share of it, and so the first-order limit of what
    layout can cost. For that the weights are simulated."""
    gpu_memory_utilization: float = 0.9
    """Share of the memory that is used, as in `serving`."""

    policy_path: ClassVar[tuple[str, ...]] = ("batch", "policy")
    objective: ClassVar[Objective | None] = KV_READ

    def measure(self, task: Task) -> dict[str, Any]:
        return read_kv(task)

    @classmethod
    def rehearsals(cls, experiments: Iterable[KvReadSpec]) -> list[KvReadSpec]:
        """The first experiment of each policy, with a small batch."""
        found: dict[str, KvReadSpec] = {}
        for experiment in experiments:
            small = {"sequences": 1, "context": 64, "age": 0}
            batch = experiment.batch.model_copy(update=small)
            tried = experiment.model_copy(update={"batch": batch})
            found.setdefault(batch.policy.name, tried)
        return list(found.values())


def read_kv(task: Task) -> dict[str, Any]:
    """Place the batch and read it once, one replication. Raises DescriptionError.

    Each replication draws other lengths of what was there before, and another layer.
    """
    spec = task.experiment
    assert isinstance(spec, KvReadSpec)
    device, model = device_of(spec), model_of(spec)
    rng = np.random.default_rng(seed_of(spec, task.replication))
    attention = spec.batch.attention
    if attention.served(model).window != model.window:
        raise DescriptionError(
            f"batch.attention: {attention.name} keeps a window of the tokens, which is modelled in "
            "serving only"
        )
    sparse = attention.sparse(model, seed_of(spec, task.replication))
    layout = kv_layout(
        device, model, spec.gpu_memory_utilization, spec.kv_layout, sparse=sparse,
        pad_bytes=spec.kv_pad,
    )  # fmt: skip
    limits = Limits(spec.batch.context, max(model.max_position, 2 * spec.batch.context))
    kind = POLICIES[spec.batch.policy.name]
    allocator = kind(layout, spec.batch.requests(), limits, spec.batch.policy)
    batch = place(allocator, spec.batch, rng)
    slowdown = spec.batch.policy.kernel_cost
    step = StepModel(device, model, slowdown=slowdown, sparse=sparse)  # says what it lacks
    reading = traffic.reading(device, model)
    extents = traffic.attention(allocator, batch, int(rng.integers(model.layers)), reading)
    dma = device.dma
    stream = dealing.deal(extents, dma.engines, reading.spread, dma.request, reading.drift)
    found = mapped(simulate_once, device, allocator)(device, stream)
    efficiency = found.gbps / device.peak_gbps
    read = ~extents.write
    read[: extents.ahead] = False  # an index
    return {
        "kv_gbps": found.gbps,
        "efficiency": efficiency,
        "row_hit_rate": found.row_hit_rate,
        "extent_bytes": float(extents.size[read].mean()),
        "descriptors": len(stream.start),
        "layer_us": found.elapsed_ns * 1e-3,
        "layer_bytes": found.total_bytes,
        **(_step(device, model, spec, step, allocator, batch, efficiency) if spec.step else {}),
    }


def _step(
    device: Device, model: TransformerSpec, spec: KvReadSpec, steps: StepModel,
    allocator: Allocator, batch: IntArray, efficiency: float,
) -> dict[str, float]:  # fmt: skip
    """Times of the whole step."""
    weights = weights_efficiency(device, model, spec.memory, simulate_once, len(batch))
    context = int(allocator.stored[batch].sum()) - len(batch)
    lengths = allocator.stored[batch] - 1
    step = Step(batch, context, [], [], 0, "offered_load", lengths=lengths)
    delivered = Efficiency(weights=weights, attention=efficiency * device.derate)
    times = steps.times(step, 1, delivered)
    share = float(times.attention_s[0] / times.total_s[0])
    return {
        "step_ms": float(times.total_s[0]) * 1e3,
        "kv_share": share,
        "layout_limit": share * (1 / efficiency - 1),
    }

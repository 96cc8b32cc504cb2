"""The memory of a run, as its fidelity asks for."""

from __future__ import annotations

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Allocator
from policies.allocators.kv_layout import KvLayout
from policies.memory import traffic
from policies.memory.fidelity import FidelitySpec, Memory, Simulate
from policies.memory.full import FullMemory
from policies.memory.mapped import mapped
from policies.memory.probe import Measured, Probe, contiguous_stream, weights_stream
from policies.memory.routed_weights import RoutedWeights
from policies.memory.routing import Routing
from policies.memory.sampling import SampledMemory
from policies.memory.step import Efficiency
from policies.memory.step_streams import StepStreams


def memory_model(
    spec: FidelitySpec, device: Device, model: TransformerSpec, layout: KvLayout,
    seed: int | tuple[int, ...], simulate: Simulate | None = None, routing: Routing | None = None,
    allocator: Allocator | None = None,
) -> Memory:  # fmt: skip
    """The memory of a run, its weights measured if they are not given.

    simulate: instead of `policies.memory.probe_cache.simulate_once`. routing: of a model with
    experts. allocator: whose placements are simulated.
    """
    given = (spec.weights, spec.attention, spec.prefill, spec.migration)
    even = spec.efficiency
    if device.given is not None:
        if spec.fidelity != "analytic":
            raise DescriptionError(
                f"{device.name}: its memory's bandwidth is given; fidelity: {spec.fidelity} "
                "simulates it, analytic does not"
            )
        even = even or device.given.efficiency
    if spec.fidelity == "analytic" and (even is not None or None not in given):
        even = even or 1.0
        return Memory(Efficiency(*(even if share is None else share for share in given)))
    if simulate is None:
        from policies.memory.probe_cache import simulate_once  # heavy: compiles kernels

        simulate = simulate_once
    if spec.weights:
        stream = Measured(spec.weights, {})
    else:
        stream = weights_stream(device, model, spec, simulate, routing)
    reading = traffic.reading(device, model)
    other = stream  # for phases that are never probed
    if spec.fidelity == "analytic":
        other = contiguous_stream(device, layout, spec, simulate, reading.spread)
    found = dict(zip(Efficiency._fields, (stream, other, other, other), strict=True))
    pairs = zip(found.values(), given, strict=True)
    efficiency = Efficiency(*(item.share if share is None else share for item, share in pairs))
    transfers = {name: item.transfer for name, item in found.items()}
    routed = share = together = None
    if spec.phases == "together" and spec.fidelity != "analytic":
        together = StepStreams(device, model, spec.weight_tile, routing)
    elif routing is not None and not spec.weights:
        routed = RoutedWeights(device, model, spec, simulate, routing)
        share = routed.share
    if spec.fidelity == "analytic":
        return Memory(efficiency, transfers, share)
    if allocator is not None:
        simulate = mapped(simulate, device, allocator)
    probe = Probe(device, spec, simulate)
    if spec.fidelity != "sampled":
        return FullMemory(
            efficiency, transfers, spec, probe, layout, reading, routed, together
        )  # fmt: skip
    return SampledMemory(
        efficiency, transfers, spec, probe, layout, seed, reading, share, together
    )  # fmt: skip

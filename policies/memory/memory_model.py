"""The memory of a run, as its fidelity asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Allocator
from policies.allocators.kv_frames import CardFrames
from policies.allocators.kv_layout import SLOT_ALIGN_TOKENS, KvLayout, space_of
from policies.engines.scheduled_step import Step
from policies.memory import traffic
from policies.memory.contention import Contention, Here
from policies.memory.fidelity import FidelitySpec, Memory, Simulate
from policies.memory.flash_memory import FlashMemory
from policies.memory.full import FullMemory
from policies.memory.mapped import CardStreams, mapped
from policies.memory.placed_memory import PlacedMemory
from policies.memory.placed_streams import PlacedStreams
from policies.memory.probe import Measured, Probe, contiguous_stream, weights_stream
from policies.memory.routed_weights import RoutedWeights
from policies.memory.routing import Routing
from policies.memory.sampling import SampledMemory
from policies.memory.step_energy import Transfer
from policies.memory.step_streams import StepStreams
from policies.memory.step_times import Efficiency
from policies.memory.step_work import StepWork
from policies.placements.card_memories import CardMemories
from policies.placements.placement import MAIN


def memory_model(
    spec: FidelitySpec, device: Device, model: TransformerSpec, layout: KvLayout,
    seed: int | tuple[int, ...], simulate: Simulate | None = None, routing: Routing | None = None,
    allocator: Allocator | None = None, contends: bool = False, frames: CardFrames | None = None,
    streams: StepStreams | None = None, here: Here | None = None,
) -> Memory:  # fmt: skip
    """The memory of a run, its weights measured if they are not given.

    simulate: instead of `policies.memory.probe_cache.simulate_once`. routing: of a model with
    experts. allocator: whose placements are simulated. contends: with what moves over links.
    frames: where a region at virtual addresses lies. streams: instead of all that a step moves.
    here: what of KV in motion lies in it; None: all of it.
    """
    if device.given is not None and device.given.flash is not None and spec.fidelity == "analytic":
        return FlashMemory(device, model, spec.efficiency or device.given.efficiency, layout.base)
    if spec.fidelity != "analytic":
        return _simulated(
            spec, device, model, layout, seed, simulate, routing, allocator, contends, frames,
            streams, here,
        )  # fmt: skip
    memory = _analytic(spec, device, model, layout, simulate, routing)
    if device.given is None:  # else nobody knows how its engines read
        streams = StepStreams(device, model, spec.weight_tile, routing)
        memory.streams = CardStreams(streams, frames)
    return memory


def placed_memory(
    spec: FidelitySpec, card: CardMemories, model: TransformerSpec, layout: KvLayout,
    seed: int | tuple[int, ...], work: Callable[[Step], StepWork],
    simulate: Simulate | None = None, routing: Routing | None = None,
    allocator: Allocator | None = None, contends: bool = False,
) -> Memory:  # fmt: skip
    """As `memory_model`, of a card with several memories. What is only given of one is given there,
    whatever the fidelity of the others. work: of a step."""
    parts: dict[str, Memory] = {}
    space = space_of(model, layout, routing)
    held = card.placement.held("kv", space)
    for name, device in card.devices.items():
        own = spec
        if device.given is not None and name != MAIN:
            own = spec.model_copy(update={"fidelity": "analytic"})
        if device.given is not None and device.given.flash is not None:
            even = spec.efficiency or device.given.efficiency
            parts[name] = FlashMemory(
                device, model, even, layout.base, card.placement, name, space
            )  # fmt: skip
            continue
        slots = int(layout.slots * held.get(name, 0.0)) // SLOT_ALIGN_TOKENS * SLOT_ALIGN_TOKENS
        region = replace(
            layout, base=card.base("kv", name, space), slots=max(slots, SLOT_ALIGN_TOKENS)
        )
        if device.given is not None:
            parts[name] = memory_model(own, device, model, region, seed, simulate, routing)
            continue
        streams = PlacedStreams(device, model, spec.weight_tile, routing, layout, card, name)
        parts[name] = memory_model(
            own, device, model, region, seed, simulate, routing, allocator,
            contends and bool(held.get(name)), streams=streams, here=partial(streams.part, "kv"),
        )  # fmt: skip
    return PlacedMemory(parts, card, space, work)


def _analytic(
    spec: FidelitySpec, device: Device, model: TransformerSpec, layout: KvLayout,
    simulate: Simulate | None, routing: Routing | None,
) -> Memory:  # fmt: skip
    """The memory whose efficiencies are given, or measured once."""
    even, given = spec.efficiency, _given(spec)
    if even is None and device.given is not None:
        even = device.given.efficiency
        given = (spec.weights or device.given.of_weights, *given[1:])
    if even is not None or None not in given:
        even = even or 1.0
        return Memory(Efficiency(*(even if share is None else share for share in given)))
    simulate = simulate or _simulate_once()
    weights = _weights(spec, device, model, simulate, routing)
    spread = traffic.reading(device, model).spread
    efficiency, transfers = _phases(
        spec, weights, contiguous_stream(device, layout, spec, simulate, spread)
    )
    if routing is None or spec.weights:
        return Memory(efficiency, transfers)
    routed = RoutedWeights(device, model, spec, simulate, routing)
    return Memory(efficiency, transfers, routed.share)


def refuse_given(spec: FidelitySpec, device: Device) -> None:
    """Raise DescriptionError where a memory is to be simulated of which the bandwidth is given."""
    if device.given is not None and spec.fidelity != "analytic":
        raise DescriptionError(
            f"{device.name}: its memory's bandwidth is given; fidelity: {spec.fidelity} "
            "simulates it, analytic does not"
        )


def _simulated(
    spec: FidelitySpec, device: Device, model: TransformerSpec, layout: KvLayout,
    seed: int | tuple[int, ...], simulate: Simulate | None, routing: Routing | None,
    allocator: Allocator | None, contends: bool, frames: CardFrames | None,
    own: StepStreams | None, here: Here | None,
) -> Memory:  # fmt: skip
    """The memory that simulates steps, now and then or each."""
    refuse_given(spec, device)
    simulate = simulate or _simulate_once()
    weights = _weights(spec, device, model, simulate, routing)
    efficiency, transfers = _phases(spec, weights, weights)  # until a phase is probed
    streams, routed = own or StepStreams(device, model, spec.weight_tile, routing), None
    if spec.phases == "in_turn" and routing is not None and not spec.weights:
        routed = RoutedWeights(device, model, spec, simulate, routing)
    if allocator is not None:
        simulate = mapped(simulate, device, allocator, frames)
    probe = Probe(device, spec, simulate)
    if spec.fidelity != "sampled":
        memory: Memory = FullMemory(
            efficiency, transfers, spec, probe, layout, streams, routed is not None
        )
    else:
        share = None if routed is None else routed.share
        memory = SampledMemory(efficiency, transfers, spec, probe, layout, streams, seed, share)
    memory.streams = CardStreams(streams, frames)
    if contends:
        memory.contention = Contention(probe, streams, spec, here)
    return memory


def _given(spec: FidelitySpec) -> tuple[float | None, ...]:
    """Efficiencies that the description gives, of the phases of `Efficiency`."""
    return spec.weights, spec.attention, spec.prefill, spec.migration


def _simulate_once() -> Simulate:
    from policies.memory.probe_cache import simulate_once  # heavy: compiles kernels

    return simulate_once


def _weights(
    spec: FidelitySpec,
    device: Device,
    model: TransformerSpec,
    simulate: Simulate,
    routing: Routing | None,
) -> Measured:
    """The stream of the weights: given, or measured."""
    if spec.weights:
        return Measured(spec.weights, {})
    return weights_stream(device, model, spec, simulate, routing)


def _phases(
    spec: FidelitySpec, weights: Measured, kv: Measured
) -> tuple[Efficiency, dict[str, Transfer]]:
    """Efficiency of each phase, given or that of its stream, and the energy of its bytes."""
    streams = dict(zip(Efficiency._fields, (weights, kv, kv, kv), strict=True))
    pairs = zip(streams.values(), _given(spec), strict=True)
    efficiency = Efficiency(*(item.share if share is None else share for item, share in pairs))
    return efficiency, {name: item.transfer for name, item in streams.items()}

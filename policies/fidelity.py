"""Which share of the memory's peak each phase of a step reaches: given, or measured at real
addresses.

`analytic` gives every phase the efficiency of a sequential stream, so that only the layout is
removed; it is the control. `sampled` measures each phase by cycle-level simulation of the step's
own addresses: a probe builds the descriptors of the running batch from a random layer on and
simulates a contiguous window of all engines' issue order; between probes the measured efficiency
carries over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from hwmodel.description import DescriptionError, Strict
from hwmodel.device import Device
from hwmodel.transformer import TransformerSpec
from hwmodel.units import Nanoseconds
from policies import traffic
from policies.engine import Engine, Step
from policies.interval import confidence_interval
from policies.kv_layout import KvLayout
from policies.requests import IntArray
from policies.step import Efficiency
from policies.traffic import Descriptors, Extent, Spread

Share = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Simulate = Callable[..., Any]
"""`hwmodel.memory.simulate_system`, or a stand-in with its signature."""

NEVER = 1 << 30
_LEAST = 1e-6
"""A measured efficiency is never taken to be below this, so that times stay finite."""


class FidelitySpec(Strict):
    """How memory time is found. What decides when to probe is assumed."""

    fidelity: Literal["analytic", "sampled"] = "analytic"
    efficiency: Share | None = None
    """analytic, every phase. None: what the DRAM model gives for a sequential stream (weights)."""
    weights: Share | None = None
    """Given instead of measured, in either fidelity; so are the next three."""
    attention: Share | None = None
    prefill: Share | None = None
    migration: Share | None = None
    spread: Spread = "slice"
    """How extents are dealt to engines (see `policies.traffic`)."""
    warmup: Nanoseconds = 10_000.0
    """Device time that a probe discards."""
    measure: Nanoseconds = 30_000.0
    """Device time that a probe measures."""
    change: Annotated[float, Field(gt=0)] = 0.2
    """Relative change of batch, extents or run length that asks for a probe."""
    every_steps: Count = 2000
    """Steps after which a probe comes in any case."""
    spacing: Annotated[float, Field(ge=0)] = 0.02
    """Steps between probes, as a share of the steps so far: probes thin out in a long run."""
    max_probes: Count = 100
    """Probes of one phase: at most so many in the warm-up, and as many after it."""


class Probe:
    """Measures a stream of descriptors on the device by simulating a window of it."""

    def __init__(self, device: Device, spec: FidelitySpec, simulate: Simulate) -> None:
        if device.accelerator is None:
            raise DescriptionError(f"{device.name} is a memory; serving needs an accelerator")
        self._device = device
        self._simulate = simulate
        self._spec = spec
        self._dma = device.accelerator.dma
        self.piece_bytes = self._dma.window
        self.simulated_bytes = 0
        self.wall_s = 0.0

    def measure(
        self, layer: Callable[[int], Extent], layers: int, spread: Spread, rng: np.random.Generator
    ) -> tuple[float, Any]:
        """(share of the peak, the simulator's result) of a phase that moves `layer(i)` in layer i.

        The window begins at a random place of a random layer and runs on into the next ones.
        """
        dma, spec = self._dma, self._spec
        begun = time.perf_counter()
        span_s = (spec.warmup + spec.measure) * 1e-9
        each = int(dma.port_bandwidth * span_s) + dma.window
        first, begin = int(rng.integers(layers)), float(rng.random())
        parts: list[Descriptors] = []
        least = 0
        while least < each and len(parts) < 2 * layers:
            extents = layer((first + len(parts)) % layers)
            dealt = traffic.deal(extents, dma.engines, spread, dma.request)
            loads = np.bincount(dealt.engine, dealt.size, dma.engines)
            least += int(loads[loads > 0].min(initial=each))
            if not parts:
                dealt = traffic.window(dealt, dma.engines, begin, NEVER, dma.request)
                least -= int(begin * loads.max(initial=0))
                whole = loads.astype(np.int64)
            parts.append(dealt)
        stream = traffic.window(traffic.joined(parts), dma.engines, 0.0, each, dma.request)
        result = self._simulate(
            self._device, stream, warmup_ns=spec.warmup, measure_ns=spec.measure
        )
        self.simulated_bytes += int(result.bytes_measured)
        self.wall_s += time.perf_counter() - begun
        share = max(result.gbps / self._device.peak_gbps, _LEAST)
        return min(share * self._kept(whole, result.gbps * 1e9), 1.0), result

    def _kept(self, loads: IntArray, rate: float) -> float:
        """What the tail of a layer leaves, when engines have run out of work."""
        latency_s = (self._dma.request_latency + self._dma.response_latency) * 1e-9
        engine_rate = self._dma.port_bandwidth
        if latency_s > 0:
            engine_rate = min(engine_rate, self._dma.window / latency_s)
        return traffic.balance(loads, max(rate, 1.0), engine_rate)


_sequential: dict[tuple[Any, ...], float] = {}


def sequential_efficiency(
    device: Device, model: TransformerSpec, spec: FidelitySpec, simulate: Simulate
) -> float:
    """Share of the peak that the weights' stream reaches; measured once a process and device."""
    key = (device.digest, model.layer_weight_bytes, spec.warmup, spec.measure, simulate)
    if key not in _sequential:
        rng = np.random.default_rng(0)  # the same for every run: it is a property of the device
        _sequential[key] = Probe(device, spec, simulate).measure(
            lambda layer: traffic.weights(model, layer), model.layers, "slice", rng
        )[0]
    return _sequential[key]


class Memory:
    """The efficiencies a run works with. This one is `analytic`: they stay."""

    rounds_to_probe = NEVER
    """Steps that may be advanced together before the next look at the clock of probes."""

    def __init__(self, efficiency: Efficiency) -> None:
        self.efficiency = efficiency

    def observe(self, step: Step, engine: Engine) -> Efficiency:
        """The efficiencies of a step that has its memory."""
        return self.efficiency

    def passed(self, rounds: int) -> None:
        """So many steps were done."""

    def mark(self) -> None:
        """The warm-up is over: what was measured before does not count in the report."""

    def report(self, moved_bytes: int) -> dict[str, Any]:
        """Efficiencies and what finding them cost; `moved_bytes` is what the run moved."""
        return {"fidelity": "analytic", "efficiency": self.efficiency._asdict()}


class SampledMemory(Memory):
    """Efficiencies measured at the addresses of the running batch."""

    def __init__(
        self, efficiency: Efficiency, spec: FidelitySpec, probe: Probe, layout: KvLayout, seed: int
    ) -> None:
        super().__init__(efficiency)
        self._spec = spec
        self._probe = probe
        self._layout = layout
        key = tuple(b"policies.fidelity")
        self._rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
        self._steps = 0
        self._clocks = {name: _Clock(spec) for name in ("attention", "prefill", "migration")}
        self._changes = -1
        self._results: dict[str, list[tuple[float, Any]]] = {name: [] for name in self._clocks}
        self._marks = dict.fromkeys(self._clocks, 0)

    @property
    def rounds_to_probe(self) -> int:  # type: ignore[override]
        return max(self._clocks["attention"].due - self._steps, 1)

    def observe(self, step: Step, engine: Engine) -> Efficiency:
        allocator = engine.allocator
        clock = self._clocks["attention"]
        changed = engine.changes != self._changes or self._steps >= clock.due
        self._changes = engine.changes
        if len(step.decode) and self._spec.attention is None and changed:
            extents = allocator.extent_count(step.decode)
            placed = (len(step.decode), extents, step.context / extents)
            if clock.asks(self._steps, placed):
                self._take(
                    "attention", lambda layer: traffic.attention(allocator, step.decode, layer)
                )
        if step.chunks and self._spec.prefill is None and self._clocks["prefill"].asks(self._steps):
            self._take("prefill", lambda layer: traffic.prefill(allocator, step.chunks, layer))
        moves, piece = step.migrations, self._probe.piece_bytes
        if moves and self._spec.migration is None and self._clocks["migration"].asks(self._steps):
            self._take("migration", lambda layer: traffic.migration(allocator, moves, layer, piece))
        return self.efficiency

    def passed(self, rounds: int) -> None:
        self._steps += rounds

    def mark(self) -> None:
        self._marks = {name: len(results) for name, results in self._results.items()}
        for clock in self._clocks.values():
            clock.restart()

    def report(self, moved_bytes: int) -> dict[str, Any]:
        """Efficiencies by phase: mean, half width of the 95 % interval, probes; cost of the
        probes."""
        phases = {}
        for name, results in self._results.items():
            counted = results[self._marks[name] :] or results[-1:]
            mean, half = confidence_interval([share for share, _ in counted])
            hits = sum(int(result.row_hits) for _, result in counted)
            others = sum(int(r.row_misses) + int(r.row_conflicts) for _, r in counted)
            phases[name] = {
                "efficiency": mean if results else getattr(self.efficiency, name),
                "ci95": half,
                "probes": len(results),
                "row_hit_rate": hits / (hits + others) if hits + others else 0.0,
            }
        return {
            "fidelity": "sampled",
            "efficiency": {"weights": self.efficiency.weights}
            | {name: phase["efficiency"] for name, phase in phases.items()},
            "phases": phases,
            "probes": sum(len(results) for results in self._results.values()),
            "simulated_bytes": self._probe.simulated_bytes,
            "simulated_share": self._probe.simulated_bytes / max(moved_bytes, 1),
            "probe_wall_s": self._probe.wall_s,
        }

    def _take(self, phase: str, layer: Callable[[int], Extent]) -> None:
        spread: Spread = "slice" if phase == "migration" else self._spec.spread
        share, result = self._probe.measure(layer, self._layout.layers, spread, self._rng)
        self._results[phase].append((share, result))
        self.efficiency = self.efficiency._replace(**{phase: share})


class _Clock:
    """When the next probe of a phase is due."""

    def __init__(self, spec: FidelitySpec) -> None:
        self._spec = spec
        self._taken = 0
        self._last = 0
        self._placed: tuple[float, ...] = ()

    def restart(self) -> None:
        """Begin anew: the next occasion is probed, and `max_probes` count from here."""
        self._taken = 0

    @property
    def due(self) -> int:
        """The step at which a probe comes in any case."""
        if self._taken >= self._spec.max_probes:
            return NEVER
        return self._last + self._spec.every_steps if self._taken else 0

    def asks(self, step: int, placed: tuple[float, ...] = ()) -> bool:
        """Whether to probe now, at these placement statistics; the probe is then counted."""
        if self._taken >= self._spec.max_probes:
            return False
        if self._taken and step < self.due:
            near = step - self._last < self._spec.spacing * step
            pairs = zip(placed, self._placed, strict=True)
            moved = max((abs(now - then) / then for now, then in pairs), default=0.0)
            if near or moved <= self._spec.change:
                return False
        self._taken += 1
        self._last, self._placed = step, placed
        return True


def memory_model(
    spec: FidelitySpec,
    device: Device,
    model: TransformerSpec,
    layout: KvLayout,
    seed: int,
    simulate: Simulate | None = None,
) -> Memory:
    """The memory of a run, its weights measured if they are not given.

    simulate: instead of `hwmodel.memory.simulate_system`.
    """
    given = (spec.weights, spec.attention, spec.prefill, spec.migration)
    if spec.fidelity == "analytic" and (spec.efficiency is not None or None not in given):
        even = spec.efficiency or 1.0
        return Memory(Efficiency(*(even if share is None else share for share in given)))
    if simulate is None:
        from hwmodel.memory import simulate_system  # heavy: compiles kernels

        simulate = simulate_system
    even = spec.weights or sequential_efficiency(device, model, spec, simulate)
    efficiency = Efficiency(*(even if share is None else share for share in given))
    if spec.fidelity == "analytic":
        return Memory(efficiency)
    return SampledMemory(efficiency, spec, Probe(device, spec, simulate), layout, seed)

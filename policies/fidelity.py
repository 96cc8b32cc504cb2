"""Which share of the memory's peak each phase of a step reaches: given, or measured at real
addresses.

`sampled` measures each phase by cycle-level simulation of the step's own addresses: a probe builds
the descriptors of the running batch from a random layer on and simulates a contiguous window of all
engines' issue order; between probes the measured efficiency carries over. `analytic` is the
control. It removes what placement changes and nothing else: the weights have the efficiency that
they have when sampled, and all phases that move KV have one that knows no layout, that of long
contiguous extents, one for each engine, at places and of sizes that do not matter (the mean of
some). Both are simulated once a process and device.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from hwmodel.description import DescriptionError, Strict
from hwmodel.device import Device
from hwmodel.transformer import TransformerSpec
from hwmodel.units import Nanoseconds, PositiveBytes
from policies import traffic
from policies.banks import bank_activity
from policies.energy import Transfer, transfer
from policies.engine import Engine, Step
from policies.interval import confidence_interval
from policies.kv_layout import KvLayout
from policies.requests import IntArray
from policies.step import Efficiency
from policies.traffic import Descriptors, Extent, Reading, Spread

Share = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Simulate = Callable[..., Any]
"""`hwmodel.memory.simulate_system`, or a stand-in with its signature."""

NEVER = 1 << 30
RECENT = 4
"""Probes of a phase that are averaged (assumed), so that no odd one stands alone until the next."""
MOST_EXTENTS = 40
"""Probes that a result tells one by one."""
_DRAWS = 24
"""Places that the control's efficiency of contiguous KV is the mean of (assumed)."""
_LEAST = 1e-6
"""A measured efficiency is never taken to be below this, so that times stay finite."""


class FidelitySpec(Strict):
    """How memory time is found. What decides when to probe is assumed."""

    fidelity: Literal["analytic", "sampled"] = "analytic"
    efficiency: Share | None = None
    """analytic, every phase. None: what the DRAM model gives for weights and for contiguous KV."""
    weights: Share | None = None
    """Given instead of measured, in either fidelity; so are the next three."""
    attention: Share | None = None
    prefill: Share | None = None
    migration: Share | None = None
    weight_tile: PositiveBytes = 16 << 10
    """Weights are dealt to engines in turn in tiles of this size (assumed)."""
    probe_bytes: PositiveBytes = 8 << 20
    """A probe measures as long as the peak takes for this much, so that it costs the same on every
    device (assumed; four times as much changes the mean by less than 1 %)."""
    warmup: Nanoseconds | None = None
    """Device time that a probe discards. None: a third of what it measures (assumed)."""
    measure: Nanoseconds | None = None
    """Device time that a probe measures. None: as `probe_bytes` says."""
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
        self.device = device
        self.memory = device.memory
        self._simulate = simulate
        self._dma = device.accelerator.dma
        self._measure_ns = spec.measure or spec.probe_bytes / device.peak_gbps
        self._warmup_ns = self._measure_ns / 3 if spec.warmup is None else spec.warmup
        self.engines = self._dma.engines
        self.piece_bytes = self._dma.window
        self.simulated_bytes = 0
        self.wall_s = 0.0

    def measure(
        self, layer: Callable[[int], Extent], layers: int, spread: Spread, rng: np.random.Generator
    ) -> tuple[float, Any]:
        """(share of the peak, the simulator's result) of a phase that moves `layer(i)` in layer i.

        The window begins at a random place of a random layer and runs on into the next ones.
        """
        dma = self._dma
        begun = time.perf_counter()
        span_s = (self._warmup_ns + self._measure_ns) * 1e-9
        each = int(dma.port_bandwidth * span_s) + dma.window
        first, begin = int(rng.integers(layers)), float(rng.random())
        parts: list[Descriptors] = []
        least = 0
        while least < each and len(parts) < 2 * layers:
            extents = layer((first + len(parts)) % layers)
            dealt = traffic.deal(extents, dma.engines, spread, dma.request)
            loads = np.bincount(dealt.engine, dealt.size, dma.engines)
            left = loads
            if not parts:
                dealt = traffic.window(dealt, dma.engines, begin, NEVER, dma.request)
                left = np.bincount(dealt.engine, dealt.size, dma.engines)
                whole = loads.astype(np.int64)
            least += int(left[loads > 0].min(initial=each))
            parts.append(dealt)
        stream = traffic.window(traffic.joined(parts), dma.engines, 0.0, each, dma.request)
        result = self._simulate(
            self.device, stream, warmup_ns=self._warmup_ns, measure_ns=self._measure_ns
        )
        self.simulated_bytes += int(result.bytes_measured)
        self.wall_s += time.perf_counter() - begun
        share = max(result.gbps / self.device.peak_gbps, _LEAST)
        return min(share * self._kept(whole, result.gbps * 1e9), 1.0), result

    def _kept(self, loads: IntArray, rate: float) -> float:
        """What the tail of a layer leaves, when engines have run out of work."""
        latency_s = (self._dma.request_latency + self._dma.response_latency) * 1e-9
        engine_rate = self._dma.port_bandwidth
        if latency_s > 0:
            engine_rate = min(engine_rate, self._dma.window / latency_s)
        return traffic.balance(loads, max(rate, 1.0), engine_rate)


class Measured(NamedTuple):
    """What a stream was found to do."""

    share: float
    """Of the peak."""
    transfer: Transfer


_known: dict[tuple[Any, ...], Measured] = {}


def weights_efficiency(
    device: Device, model: TransformerSpec, spec: FidelitySpec, simulate: Simulate
) -> float:
    """Share of the peak that the weights' stream reaches; measured once a process and device."""
    return weights_stream(device, model, spec, simulate).share


def weights_stream(
    device: Device, model: TransformerSpec, spec: FidelitySpec, simulate: Simulate
) -> Measured:
    """What the weights' stream does; measured once a process and device."""
    key = (device.digest, model.layer_weight_bytes, _window(spec), spec.weight_tile, simulate)
    if key not in _known:
        rng = np.random.default_rng(0)  # the same for every run: it is a property of the device
        share, result = Probe(device, spec, simulate).measure(
            lambda layer: traffic.weights(model, layer, spec.weight_tile),
            model.layers, "split", rng,
        )  # fmt: skip
        _known[key] = Measured(share, transfer(device.memory, [result]))
    return _known[key]


def contiguous_stream(
    device: Device, layout: KvLayout, spec: FidelitySpec, simulate: Simulate, spread: Spread
) -> Measured:
    """What KV does in long contiguous extents, one for each engine.

    The mean of `_DRAWS` batches that lie at random in the KV region, so that no single alignment
    of the engines' extents decides. Measured once a process and device.
    """
    key = (device.digest, layout, _window(spec), spread, simulate)
    if key not in _known:
        probe, rng = Probe(device, spec, simulate), np.random.default_rng(0)
        engines, align = probe.engines, layout.half_bytes
        found = []
        for _ in range(_DRAWS):
            size = int(layout.bytes * rng.uniform(0.5, 1.0)) // layout.layers // align * align
            start = layout.base + int(rng.integers(layout.bytes - size + 1)) // align * align
            batch = {0: traffic.contiguous(start, size, engines)}  # the only layer
            found.append(probe.measure(batch.__getitem__, 1, spread, rng))
        shares, results = zip(*found, strict=True)
        mean = math.fsum(shares) / len(shares)
        _known[key] = Measured(mean, transfer(device.memory, results))
    return _known[key]


def _window(spec: FidelitySpec) -> tuple[Any, ...]:
    return spec.probe_bytes, spec.warmup, spec.measure


class Memory:
    """The efficiencies a run works with. This one is `analytic`: they stay."""

    rounds_to_probe = NEVER
    """Steps that may be advanced together before the next look at the clock of probes."""

    def __init__(
        self, efficiency: Efficiency, transfers: Mapping[str, Transfer] | None = None
    ) -> None:
        self.efficiency = efficiency
        self._transfers = {} if transfers is None else dict(transfers)

    def transfers(self) -> dict[str, Transfer]:
        """Energy of each phase's bytes; empty where nothing was simulated."""
        return self._transfers

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
        self, efficiency: Efficiency, transfers: Mapping[str, Transfer], spec: FidelitySpec,
        probe: Probe, layout: KvLayout, seed: int | tuple[int, ...], reading: Reading,
    ) -> None:  # fmt: skip
        super().__init__(efficiency, transfers)
        self._spec = spec
        self._probe = probe
        self._layout = layout
        self._reading = reading
        key = tuple(b"policies.fidelity")
        self._rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
        self._steps = 0
        self._clocks = {name: _Clock(spec) for name in ("attention", "prefill", "migration")}
        self._changes = -1
        self._results: dict[str, list[tuple[float, Any]]] = {name: [] for name in self._clocks}
        self._marks = dict.fromkeys(self._clocks, 0)
        self._run_bytes: list[float] = []
        """Mean extent of one layer's K at each probe of the attention."""

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
                    "attention",
                    lambda layer: traffic.attention(allocator, step.decode, layer, self._reading),
                )
                self._run_bytes.append(step.context / extents * self._layout.half_bytes)
        if step.chunks and self._spec.prefill is None and self._clocks["prefill"].asks(self._steps):
            self._take(
                "prefill",
                lambda layer: traffic.prefill(allocator, step.chunks, layer, self._reading),
            )
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

    def transfers(self) -> dict[str, Transfer]:
        found = {
            name: transfer(self._probe.memory, [result for _, result in self._counted(name)])
            for name, results in self._results.items()
            if results
        }
        return self._transfers | found

    def _counted(self, phase: str) -> list[tuple[float, Any]]:
        """The probes of a phase that count: after the warm-up, or the last before."""
        results = self._results[phase]
        return results[self._marks[phase] :] or results[-1:]

    def report(self, moved_bytes: int) -> dict[str, Any]:
        """Efficiencies by phase: mean, half width of the 95 % interval, probes; cost of the
        probes."""
        phases = {}
        for name, results in self._results.items():
            counted = self._counted(name)
            mean, half = confidence_interval([share for share, _ in counted])
            hits = sum(int(result.row_hits) for _, result in counted)
            others = sum(int(r.row_misses) + int(r.row_conflicts) for _, r in counted)
            phases[name] = {
                "efficiency": mean if results else getattr(self.efficiency, name),
                "ci95": half,
                "probes": len(results),
                "row_hit_rate": hits / (hits + others) if hits + others else 0.0,
                "banks": bank_activity(self._probe.device, [result for _, result in counted]),
            }
        phases["attention"]["by_extent"] = self._by_extent()
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

    def _by_extent(self) -> list[list[float]]:
        """Mean extent in bytes and GB/s of each probe of the attention that counts, some of them
        where there are many."""
        found = [
            [round(size), float(f"{result.gbps:.5g}")]
            for size, (_, result) in zip(self._run_bytes, self._results["attention"], strict=True)
        ][self._marks["attention"] :]
        return found[:: -(-len(found) // MOST_EXTENTS) or 1]

    def _take(self, phase: str, layer: Callable[[int], Extent]) -> None:
        spread: Spread = "slice" if phase == "migration" else self._reading.spread
        share, result = self._probe.measure(layer, self._layout.layers, spread, self._rng)
        self._results[phase].append((share, result))
        last = [share for share, _ in self._results[phase][-RECENT:]]
        # a time is bytes over efficiency: times are averaged
        self.efficiency = self.efficiency._replace(**{phase: len(last) / sum(1 / e for e in last)})


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
    seed: int | tuple[int, ...],
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
    stream = Measured(spec.weights, {}) if spec.weights else weights_stream(
        device, model, spec, simulate
    )  # fmt: skip
    reading = traffic.reading(device, model)
    other = stream  # stands where a phase never comes to be probed
    if spec.fidelity == "analytic":
        other = contiguous_stream(device, layout, spec, simulate, reading.spread)
    found = dict(zip(Efficiency._fields, (stream, other, other, other), strict=True))
    pairs = zip(found.values(), given, strict=True)
    efficiency = Efficiency(*(item.share if share is None else share for item, share in pairs))
    transfers = {name: item.transfer for name, item in found.items()}
    if spec.fidelity == "analytic":
        return Memory(efficiency, transfers)
    probe = Probe(device, spec, simulate)
    return SampledMemory(efficiency, transfers, spec, probe, layout, seed, reading)

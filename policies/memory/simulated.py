"""Memory whose phases are simulated at the addresses of steps: which phases of a step, which of its
layers, and what is reported of them. How often is the subclasses' own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from policies.allocators.allocator import Allocator
from policies.allocators.kv_layout import KvLayout
from policies.engines.engine import Engine
from policies.engines.scheduled_step import Step
from policies.memory.banks import bank_activity
from policies.memory.fidelity import KV_PHASES, FidelitySpec, Memory
from policies.memory.probe import Layer, Probe
from policies.memory.step_energy import Transfer, transfer
from policies.memory.step_streams import StepStreams, StreamPhase
from policies.memory.step_times import Efficiency


class SimulatedMemory(Memory):
    """Efficiencies of what `streams` moves. routed: as of `Memory`."""

    def __init__(
        self, efficiency: Efficiency, transfers: Mapping[str, Transfer], spec: FidelitySpec,
        probe: Probe, layout: KvLayout, streams: StepStreams,
        routed: Callable[[int], float] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(efficiency, transfers, routed)
        self._spec, self._probe, self._layout, self._streams = spec, probe, layout, streams
        self._together = spec.phases == "together"
        self._phases: tuple[StreamPhase, ...] = KV_PHASES
        """That are simulated, in order."""

    def observe(self, step: Step, engine: Engine) -> Efficiency:
        there = self._streams.phases(step)
        for phase in self._phases:
            given = phase != "weights" and getattr(self._spec, phase) is not None
            if phase in there and not given and not (self._one(step, phase)):
                self._look(phase, step, engine)
        efficiency = super().observe(step, engine)
        return efficiency.as_one(bool(step.chunks)) if self._together else efficiency

    def _one(self, step: Step, phase: StreamPhase) -> bool:
        """Whether a phase is moved with the chunks of its step, and simulated with them."""
        return self._together and phase == "attention" and bool(step.chunks)

    @abstractmethod
    def _look(self, phase: StreamPhase, step: Step, engine: Engine) -> None:
        """Find the efficiency of a phase of a step, where that is due."""

    def _layer(self, phase: StreamPhase, step: Step, allocator: Allocator) -> Layer:
        """What the phase moves in each layer; all phases but copies where they are moved at the
        same time."""
        streams, draw = self._streams, self._steps
        if self._together and phase != "migration":
            return lambda layer: streams.at_once(step, allocator, layer, draw)
        return lambda layer: streams.layer(step, allocator, phase, layer, draw)

    def _kinds(self, phase: StreamPhase) -> list[list[int]]:
        """The layers that move something then, by kind."""
        together = self._together and phase != "migration"
        return self._streams.kinds("together" if together else phase, self._layout)

    def transfers(self) -> dict[str, Transfer]:
        found = {name: self._found(name) for name in self._phases}
        memory = self._probe.memory
        return self._transfers | {
            name: transfer(memory, results) for name, results in found.items() if results
        }

    def report(self, moved_bytes: int) -> dict[str, Any]:
        """Efficiencies by phase (bytes over the time at the peak), half widths of their 95 %
        intervals, and what finding them cost."""
        phases = {name: self._phase_report(name) for name in self._phases}
        one = self._together
        weights = phases["attention"]["efficiency"] if one else self.efficiency.weights
        return {
            "fidelity": self._spec.fidelity,
            **({"together": True} if one else {}),
            **self.in_motion(),
            **self._errors(),
            "efficiency": {"weights": weights}
            | {name: phase["efficiency"] for name, phase in phases.items()},
            "phases": phases,
            "probes": sum(phase["probes"] for phase in phases.values()),
            "simulated_bytes": self._probe.simulated_bytes,
            "simulated_share": self._probe.simulated_bytes / max(moved_bytes, 1),
            "probe_wall_s": self._probe.wall_s,
        }

    def _phase_report(self, phase: StreamPhase) -> dict[str, Any]:
        results = self._found(phase)
        hits = sum(int(result.row_hits) for result in results)
        others = sum(int(r.row_misses) + int(r.row_conflicts) for r in results)
        share, half = self._share(phase)
        return {
            "efficiency": getattr(self.efficiency, phase) if share is None else share,
            "ci95": half,
            "probes": self._probes(phase),
            "row_hit_rate": hits / (hits + others) if hits + others else 0.0,
            "banks": bank_activity(self._probe.device, results),
        }

    @abstractmethod
    def _found(self, phase: StreamPhase) -> Sequence[Any]:
        """The simulator's results of a phase that count."""

    @abstractmethod
    def _probes(self, phase: StreamPhase) -> int:
        """How often it was simulated."""

    @abstractmethod
    def _share(self, phase: StreamPhase) -> tuple[float | None, float | None]:
        """(its efficiency where it was simulated, the half-width of the interval)."""

    def _errors(self) -> dict[str, float]:
        """What sampling adds to the error of other figures, where there is any."""
        return {}

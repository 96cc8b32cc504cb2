"""Memory that is simulated in every step: `full`, one whole layer, or `exhaustive`, every layer.

Each phase of a step is simulated at its own addresses, on all channels, from the first request to
the last data beat of a layer; in `full` the layers take turns, one a step, and stand for the
others. The weights are the same in every step: they are simulated once, the first layer of them in
`full`; with experts they are simulated in every step, with those that its tokens pass through.
Phases, and layers in `exhaustive`, begin with idle banks. With `phases: together` weights, prefill
and attention of a layer are one stream, reported under `prefill` where the step has chunks, else
under `attention`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from policies.allocators.kv_layout import KvLayout
from policies.engines.engine import Engine
from policies.engines.scheduled_step import Step
from policies.memory.fidelity import KV_PHASES, FidelitySpec
from policies.memory.probe import Probe
from policies.memory.simulated import SimulatedMemory
from policies.memory.step_energy import Transfer
from policies.memory.step_streams import StepStreams, StreamPhase
from policies.memory.step_times import Efficiency, StepTimes

_KEPT = 256
"""Results of a phase that its energy and bank activity are taken from: the last ones."""


class FullMemory(SimulatedMemory):
    """Efficiencies of each step's own streams."""

    rounds_to_probe = 1

    def __init__(
        self, efficiency: Efficiency, transfers: Mapping[str, Transfer], spec: FidelitySpec,
        probe: Probe, layout: KvLayout, streams: StepStreams, routed: bool = False,
    ) -> None:  # fmt: skip
        """routed: whether the weights of a step are those of its experts, and simulated with it."""
        super().__init__(efficiency, transfers, spec, probe, layout, streams)
        if routed:
            self._phases = ("weights", *KV_PHASES)
        self._results: dict[str, list[Any]] = {name: [] for name in self._phases}
        self._moved: Counter[str] = Counter()
        """Bytes of each phase that count, and below what they would be at one share of the peak."""
        self._at_peak: Counter[str] = Counter()
        self._simulated: Counter[str] = Counter()

    def passed(self, rounds: int, times: StepTimes | None = None) -> None:
        self._steps += rounds

    def mark(self) -> None:
        self._moved.clear()
        self._at_peak.clear()

    def _found(self, phase: StreamPhase) -> list[Any]:
        return self._results[phase]

    def _probes(self, phase: StreamPhase) -> int:
        return self._simulated[phase]

    def _share(self, phase: StreamPhase) -> tuple[float | None, float | None]:
        at_peak = self._at_peak[phase]
        return (self._moved[phase] / at_peak if at_peak else None), 0.0

    def _turn(self, phase: StreamPhase) -> tuple[Sequence[int], list[int] | None]:
        """(layers of this step, for how many each stands): the next one, of each kind where they
        are not alike, or all of them."""
        kinds, steps = self._kinds(phase), self._steps
        if self._spec.fidelity == "exhaustive":
            return sorted(each for kind in kinds for each in kind), None
        layers = [kind[steps % len(kind)] for kind in kinds]
        return layers, None if len(kinds) == 1 else [len(kind) for kind in kinds]

    def _look(self, phase: StreamPhase, step: Step, engine: Engine) -> None:
        layer = self._layer(phase, step, engine.allocator)
        layers, stand_for = self._turn(phase)
        before = self._probe.simulated_bytes
        spread = self._streams.spread(phase)
        share, result = self._probe.whole(
            (self._probe.deal(layer(index), spread) for index in layers), stand_for
        )
        if result is None:
            return
        moved = self._probe.simulated_bytes - before
        self._moved[phase] += moved
        self._at_peak[phase] += moved / share  # type: ignore[assignment]
        self._simulated[phase] += 1
        self._results[phase] = [*self._results[phase][-_KEPT:], result]
        self.efficiency = self.efficiency._replace(**{phase: share})

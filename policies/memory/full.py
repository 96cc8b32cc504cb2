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
from policies.memory import traffic
from policies.memory.banks import bank_activity
from policies.memory.fidelity import KV_PHASES, FidelitySpec, Memory
from policies.memory.probe import Layer, Probe
from policies.memory.routed_weights import RoutedWeights
from policies.memory.step import Efficiency, StepTimes
from policies.memory.step_energy import Transfer, transfer
from policies.memory.step_streams import StepStreams
from policies.memory.traffic import Reading, Spread

_KEPT = 256
"""Results of a phase that its energy and bank activity are taken from: the last ones."""


class FullMemory(Memory):
    """Efficiencies of each step's own streams."""

    rounds_to_probe = 1

    def __init__(
        self, efficiency: Efficiency, transfers: Mapping[str, Transfer], spec: FidelitySpec,
        probe: Probe, layout: KvLayout, reading: Reading, routed: RoutedWeights | None = None,
        together: StepStreams | None = None,
    ) -> None:  # fmt: skip
        """together: where the phases of a step are moved at the same time."""
        super().__init__(efficiency, transfers)
        self._spec = spec
        self._probe = probe
        self._layout = layout
        self._reading = reading
        self._weights = routed
        self._together = together
        simulated = KV_PHASES if routed is None else ("weights", *KV_PHASES)
        self._results: dict[str, list[Any]] = {name: [] for name in simulated}
        self._moved: Counter[str] = Counter()
        """Bytes of each phase that count, and below what they would be at one share of the peak."""
        self._at_peak: Counter[str] = Counter()
        self._simulated: Counter[str] = Counter()

    def observe(self, step: Step, engine: Engine) -> Efficiency:
        allocator, spec, reading = engine.allocator, self._spec, self._reading
        moves, copies, piece = step.migrations, step.copies, self._probe.piece_bytes
        if (weights := self._weights) is not None:
            tokens, draw = step.routed, self._steps
            self._simulate("weights", lambda layer: weights.layer(tokens, layer, draw))
        if (streams := self._together) is not None:
            draw = self._steps
            self._simulate(
                "prefill" if step.chunks else "attention",
                lambda layer: streams.at_once(step, allocator, layer, draw),
            )
        elif len(step.decode) and spec.attention is None:
            self._simulate(
                "attention", lambda layer: traffic.attention(allocator, step.decode, layer, reading)
            )
        if step.chunks and spec.prefill is None and streams is None:
            self._simulate(
                "prefill", lambda layer: traffic.prefill(allocator, step.chunks, layer, reading)
            )
        if (moves or copies) and spec.migration is None:
            self._simulate(
                "migration", lambda layer: traffic.migration(allocator, moves, layer, piece, copies)
            )
        return self.efficiency if streams is None else self.efficiency.as_one(bool(step.chunks))

    def passed(self, rounds: int, times: StepTimes | None = None) -> None:
        self._steps += rounds

    def mark(self) -> None:
        self._moved.clear()
        self._at_peak.clear()

    def transfers(self) -> dict[str, Transfer]:
        memory = self._probe.memory
        own = {name: transfer(memory, items) for name, items in self._results.items() if items}
        return self._transfers | own

    def report(self, moved_bytes: int) -> dict[str, Any]:
        """Efficiencies by phase (bytes over the time at the peak), as `sampled` reports them; there
        is no sampling error."""
        phases = {}
        for name, results in self._results.items():
            hits = sum(int(result.row_hits) for result in results)
            others = sum(int(r.row_misses) + int(r.row_conflicts) for r in results)
            share = self._moved[name] / self._at_peak[name] if self._at_peak[name] else None
            phases[name] = {
                "efficiency": getattr(self.efficiency, name) if share is None else share,
                "ci95": 0.0,
                "probes": self._simulated[name],
                "row_hit_rate": hits / (hits + others) if hits + others else 0.0,
                "banks": bank_activity(self._probe.device, results),
            }
        one = self._together is not None
        weights = phases["attention"]["efficiency"] if one else self.efficiency.weights
        return {
            "fidelity": self._spec.fidelity,
            **({"together": True} if one else {}),
            **self.in_motion(),
            "efficiency": {"weights": weights}
            | {name: phase["efficiency"] for name, phase in phases.items()},
            "phases": phases,
            "probes": self._simulated.total(),
            "simulated_bytes": self._probe.simulated_bytes,
            "simulated_share": self._probe.simulated_bytes / max(moved_bytes, 1),
            "probe_wall_s": self._probe.wall_s,
        }

    def _turn(self) -> tuple[Sequence[int], list[int] | None]:
        """(layers of this step, for how many each stands): the next one, of each kind where some
        have windows, or all of them."""
        groups, steps = self._layout.groups, self._steps
        count = self._layout.layers if groups is None else len(groups.windows)
        if self._spec.fidelity == "exhaustive":
            return range(count), None
        if groups is None:
            return [steps % count], None
        kinds = groups.kinds
        return [layers[steps % len(layers)] for layers in kinds], [len(each) for each in kinds]

    def _simulate(self, phase: str, layer: Layer) -> None:
        spread: Spread = self._reading.spread
        spread = {"migration": "slice", "weights": "split"}.get(phase, spread)  # type: ignore[assignment]
        layers, stand_for = self._turn()
        before = self._probe.simulated_bytes
        share, result = self._probe.whole(
            (self._probe.deal(layer(index), spread) for index in layers), stand_for
        )
        moved = self._probe.simulated_bytes - before
        self._moved[phase] += moved
        self._at_peak[phase] += moved / share  # type: ignore[assignment]
        self._simulated[phase] += 1
        self._results[phase] = [*self._results[phase][-_KEPT:], result]
        self.efficiency = self.efficiency._replace(**{phase: share})

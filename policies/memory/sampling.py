"""Memory that is simulated now and then: `sampled`.

A probe builds the descriptors of the running batch from a random layer on and simulates a
contiguous window of all engines' issue order, or a whole layer where that is short. Probes come
when placement statistics have changed, when the interval of the efficiency is too wide, and after
`every_steps` in any case; between them the mean of the last ones is used, as far as placement was
similar. A phase whose interval is too wide for the throughput is probed beyond `max_probes`. Some
probes also simulate the whole layer, or the start of a long one: the time it takes beyond the
window's estimate is added to the others, scaled with the root of their length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from policies.allocators.kv_layout import KvLayout
from policies.engines.engine import Engine
from policies.engines.scheduled_step import Step
from policies.memory import traffic
from policies.memory.banks import bank_activity
from policies.memory.fidelity import AGAIN, KV_PHASES, NO_PROBE, FidelitySpec, Memory
from policies.memory.interval import confidence_interval
from policies.memory.probe import LEAST, Beside, Layer, Probe, lost_ns
from policies.memory.step import Efficiency, StepTimes
from policies.memory.step_energy import Transfer, transfer
from policies.memory.step_streams import StepStreams
from policies.memory.traffic import Reading, Spread
from policies.requests.requests import FloatArray

RECENT = 4
"""Probes of a phase that are averaged (assumed), so that no outlier stands alone."""
FIRST, EVERY = 4, 32
"""The first FIRST of every EVERY windows also measure a whole layer (assumed)."""
ANOTHER = 3.0
"""Placement statistics that changed by more than this (to four times or a quarter) are probed
however recent the last probe is (assumed)."""
_ALL = "all"
"""Seconds of steps, whatever they hang on."""
MOST_EXTENTS = 40
"""Most probes that a result lists one by one."""


class SampledMemory(Memory):
    """Efficiencies measured at the addresses of the running batch."""

    def __init__(
        self, efficiency: Efficiency, transfers: Mapping[str, Transfer], spec: FidelitySpec,
        probe: Probe, layout: KvLayout, seed: int | tuple[int, ...], reading: Reading,
        routed: Callable[[int], float] | None = None, together: StepStreams | None = None,
    ) -> None:  # fmt: skip
        """together: where the phases of a step are moved at the same time, measured as `full` has
        them."""
        super().__init__(efficiency, transfers, routed)
        self._spec = spec
        self._probe = probe
        self._layout = layout
        self._reading = reading
        self._together = together
        key = (*b"policies.fidelity", spec.seed)
        self._rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
        self._clocks = {name: Clock(spec) for name in KV_PHASES}
        self._changes = -1
        self._results: dict[str, list[tuple[float, Any]]] = {name: [] for name in self._clocks}
        self._marks = dict.fromkeys(self._clocks, 0)
        self._beside: dict[str, list[Beside]] = {name: [] for name in self._clocks}
        """Layers that were simulated in addition to their windows."""
        self._windows = dict.fromkeys(self._clocks, 0)
        """Probes of a window."""
        self._common = dict.fromkeys(self._clocks, 0.0)
        """Relative half-width common to all windows, from what they leave out."""
        self._intervals: dict[str, tuple[float, float | None]] = {}
        """`_measured` since the last probe of each phase."""
        self._placed: dict[str, list[tuple[float, ...]]] = {name: [] for name in self._clocks}
        """Placement statistics of each probe."""
        self._spent_s = dict.fromkeys((*KV_PHASES, _ALL), 0.0)
        """Seconds since the warm-up that hang on each phase's efficiency, and all of them."""
        self._run_bytes: list[float] = []
        """Mean extent of one layer's K at each probe of the attention."""

    @property
    def rounds_to_probe(self) -> int:  # type: ignore[override]
        return max(self._clocks["attention"].due - self._steps, 1)

    def observe(self, step: Step, engine: Engine) -> Efficiency:
        allocator, streams, draw = engine.allocator, self._together, self._steps
        clock = self._clocks["attention"]
        changed = engine.changes != self._changes or self._steps >= clock.due
        self._changes = engine.changes
        attends = len(step.decode) and self._spec.attention is None
        if attends and changed and (streams is None or not step.chunks):
            extents = allocator.extent_count(step.decode)
            tokens = step.context
            if step.lengths is not None:
                tokens = int(self._layout.slots_of(step.lengths).sum())
            placed = (len(step.decode), extents, tokens / extents)
            if clock.asks(self._steps, placed, *self._wants("attention")):
                self._take(
                    "attention",
                    lambda layer: (
                        traffic.attention(allocator, step.decode, layer, self._reading)
                        if streams is None
                        else streams.at_once(step, allocator, layer, draw)
                    ),
                    placed,
                )
                self._run_bytes.append(self._read_bytes(step, engine, tokens / extents))
        if step.chunks and self._spec.prefill is None and self._asks("prefill"):
            self._take(
                "prefill",
                lambda layer: (
                    traffic.prefill(allocator, step.chunks, layer, self._reading)
                    if streams is None
                    else streams.at_once(step, allocator, layer, draw)
                ),
            )
        moves, copies, piece = step.migrations, step.copies, self._probe.piece_bytes
        if (moves or copies) and self._spec.migration is None and self._asks("migration"):
            self._take(
                "migration", lambda layer: traffic.migration(allocator, moves, layer, piece, copies)
            )
        efficiency = super().observe(step, engine)
        return efficiency if streams is None else efficiency.as_one(bool(step.chunks))

    def passed(self, rounds: int, times: StepTimes | None = None) -> None:
        self._steps += rounds
        if times is not None:
            attention_s = float(times.attention_s.sum())
            if self._together is not None:  # the weights have the error of the attention
                attention_s += times.weights_s * rounds
            self._spent_s["attention"] += attention_s
            self._spent_s["prefill"] += times.chunk_memory_s * rounds
            self._spent_s["migration"] += (times.migration_s + times.copy_s) * rounds
            self._spent_s[_ALL] += float(times.total_s.sum())

    def mark(self) -> None:
        self._spent_s = dict.fromkeys(self._spent_s, 0.0)
        self._marks = {name: len(results) for name, results in self._results.items()}
        self._intervals.clear()
        for clock in self._clocks.values():
            clock.restart(self._steps)

    def transfers(self) -> dict[str, Transfer]:
        own = {
            name: transfer(self._probe.memory, [result for _, result in self._counted(name)])
            for name, results in self._results.items()
            if results
        }
        return self._transfers | own

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
            mean, half = self._interval(name)
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
        one, error = self._together is not None, math.hypot(*map(self._error, phases))
        weights = phases["attention"]["efficiency"] if one else self.efficiency.weights
        return {
            "fidelity": "sampled",
            **({"together": True} if one else {}),
            **self.in_motion(),
            **({"throughput_ci95": error} if error else {}),
            "efficiency": {"weights": weights}
            | {name: phase["efficiency"] for name, phase in phases.items()},
            "phases": phases,
            "probes": sum(len(results) for results in self._results.values()),
            "simulated_bytes": self._probe.simulated_bytes,
            "simulated_share": self._probe.simulated_bytes / max(moved_bytes, 1),
            "probe_wall_s": self._probe.wall_s,
        }

    def _read_bytes(self, step: Step, engine: Engine, run: float) -> float:
        """Mean extent of one layer's K, where requests lie in runs of `run` tokens; where tokens
        are chosen of them, of what is read."""
        if self._layout.sparse is None:
            return run * self._layout.half_bytes
        extents = traffic.attention(engine.allocator, step.decode, 0, self._reading)
        read = ~extents.write
        read[: extents.ahead] = False
        return float(extents.size[read].mean()) if read.any() else 0.0

    def _by_extent(self) -> list[list[float]]:
        """Mean extent in bytes and GB/s of each probe of the attention that counts, some of them
        where there are many."""
        points = [
            [round(size), float(f"{result.gbps:.5g}")]
            for size, (_, result) in zip(self._run_bytes, self._results["attention"], strict=True)
        ][self._marks["attention"] :]
        return points[:: -(-len(points) // MOST_EXTENTS) or 1]

    def _layers(self, layer: Layer) -> tuple[int, FloatArray | None]:
        """Layers of the model, and of each its share of what they all move, where some have
        windows: drawn by it, the mean of a time over its bytes is that of all layers together."""
        if (groups := self._layout.groups) is None:
            return self._layout.layers, None
        moved = np.zeros(len(groups.windows))
        for kind in groups.kinds:
            moved[kind] = layer(kind[0]).size.sum()
        return len(moved), moved / moved.sum()

    def _asks(self, phase: str) -> bool:
        return self._clocks[phase].asks(self._steps, (), *self._wants(phase))

    def _wants(self, phase: str) -> tuple[bool, int]:
        """Whether the interval of what counts is too wide, as far as two probes show, and how often
        the phase may be probed."""
        if len(self._results[phase]) - self._marks[phase] < 2:
            return False, self._spec.max_probes
        mean, half = self._measured(phase)
        wide = half is not None and half > self._spec.precision * mean
        more = AGAIN if self._error(phase) > self._spec.again / 2 else 1
        return wide, self._spec.max_probes * more

    def _measured(self, phase: str) -> tuple[float, float | None]:
        """Mean efficiency of the probes that count, and the half-width of its interval as they
        spread."""
        if phase not in self._intervals:
            shares = [share for share, _ in self._counted(phase)]
            self._intervals[phase] = confidence_interval(shares)
        return self._intervals[phase]

    def _interval(self, phase: str) -> tuple[float, float | None]:
        """As `_measured`, and with what windows leave out."""
        mean, half = self._measured(phase)
        return mean, None if half is None else math.hypot(half, self._common[phase] * mean)

    def _error(self, phase: str) -> float:
        """Relative half-width that the interval of a phase adds to the throughput's: admissions are
        taken as unchanged, and what does not hang on the efficiency is exact."""
        mean, half = self._interval(phase)
        if half is None or not self._spent_s[_ALL]:
            return 0.0
        return self._spent_s[phase] / self._spent_s[_ALL] * half / mean

    def _take(self, phase: str, layer: Layer, placed: tuple[float, ...] = ()) -> None:
        spread: Spread = "slice" if phase == "migration" else self._reading.spread
        results, beside, place = self._results[phase], self._beside[phase], self._placed[phase]
        calibrate = self._windows[phase] % EVERY < FIRST
        layers, shares = self._layers(layer)
        probed = self._probe.measure(layer, layers, spread, self._rng, calibrate, shares)
        if probed.beside is not None:
            beside.append(probed.beside)
        elapsed_ns = probed.elapsed_ns
        if probed.beside is not None or not probed.exact:
            self._windows[phase] += 1
        if not probed.exact:
            mean_ns, half_ns = lost_ns(beside, probed.at_peak_ns)
            elapsed_ns += mean_ns
            self._common[phase] = half_ns / elapsed_ns
        self._intervals.pop(phase, None)
        results.append((min(max(probed.at_peak_ns / elapsed_ns, LEAST), 1.0), probed.result))
        place.append(placed)
        last = [
            share
            for (share, _), then in zip(results[-RECENT:], place[-RECENT:], strict=True)
            if moved(placed, then) <= self._spec.change
        ]
        # a time is bytes over efficiency: times are averaged
        self.efficiency = self.efficiency._replace(**{phase: len(last) / sum(1 / e for e in last)})


def moved(now: tuple[float, ...], then: tuple[float, ...]) -> float:
    """The largest relative change of placement statistics, of the smaller value."""
    pairs = zip(now, then, strict=True)
    return max((max(new / old, old / new) - 1 for new, old in pairs), default=0.0)


class Clock:
    """When the next probe of a phase is due: ever more rarely, so that a run twice as long takes a
    few more probes, spread over all of it."""

    def __init__(self, spec: FidelitySpec) -> None:
        self._spec = spec
        self._taken = 0
        self._begin = 0
        """The step that the clock counts from."""
        self._last = 0
        self._placed: tuple[float, ...] = ()

    def restart(self, step: int) -> None:
        """Begin anew: the next occasion is probed, and `max_probes` count from here."""
        self._taken = 0
        self._begin = step

    @property
    def due(self) -> int:
        """The step at which a probe comes in any case."""
        if self._taken >= self._spec.max_probes:
            return NO_PROBE
        if not self._taken:
            return 0
        gone = self._last - self._begin
        return self._last + max(self._spec.every_steps, math.ceil(self._spec.spacing * gone))

    def asks(self, step: int, placed: tuple[float, ...], wide: bool, most: int) -> bool:
        """Whether to probe now, at these placement statistics, and where the interval is too
        `wide` whatever they are, unless there were so many; the probe is then counted."""
        if self._taken >= most:
            return False
        if self._taken and step < self.due:
            gone = moved(placed, self._placed)
            near = step - self._last < self._spec.spacing * (step - self._begin)
            if gone <= ANOTHER and (near or (gone <= self._spec.change and not wide)):
                return False
        self._taken += 1
        self._last, self._placed = step, placed
        return True

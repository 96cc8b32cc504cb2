"""Memory that is simulated now and then: `sampled`.

A probe builds the descriptors of the running batch from a random layer on and simulates a
contiguous window of all engines' issue order, or a whole layer where that is short. Probes come
when placement statistics have changed, when the interval of the efficiency is too wide, and after
`every_steps` in any case; between them the mean of the last ones is used, as far as placement was
similar. A phase whose interval is too wide for the throughput is probed beyond `max_probes`. Some
probes, and all while most of a wide interval is what windows leave out, also simulate the whole
layer, or the start of a long one: the time it takes beyond the window's estimate is added to the
others, scaled with the root of their length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from policies.allocators.columns import total_of
from policies.allocators.kv_layout import KvLayout
from policies.engines.engine import Engine
from policies.engines.scheduled_step import Step
from policies.memory.fidelity import AGAIN, KV_PHASES, NO_PROBE, FidelitySpec
from policies.memory.interval import STATED, ratio_interval, stated
from policies.memory.probe import LEAST, Beside, Layer, Probe, lost_ns
from policies.memory.simulated import SimulatedMemory
from policies.memory.step_energy import Transfer
from policies.memory.step_streams import StepStreams, StreamPhase
from policies.memory.step_times import Efficiency, StepTimes
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


class Taken(NamedTuple):
    """A probe of a phase: a layer's time at the peak, what it takes, what the simulator found, the
    placement statistics of the step, and the descriptors of the layer."""

    at_peak_ns: float
    elapsed_ns: float
    result: Any
    placed: tuple[float, ...]
    descriptors: int


class SampledMemory(SimulatedMemory):
    """Efficiencies measured at the addresses of the running batch."""

    def __init__(
        self, efficiency: Efficiency, transfers: Mapping[str, Transfer], spec: FidelitySpec,
        probe: Probe, layout: KvLayout, streams: StepStreams, seed: int | tuple[int, ...],
        routed: Callable[[int], float] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(efficiency, transfers, spec, probe, layout, streams, routed)
        key = (*b"policies.fidelity", spec.seed)
        self._rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
        self._clocks: dict[str, ProbeClock] = {name: ProbeClock(spec) for name in KV_PHASES}
        self._changes = -1
        self._results: dict[str, list[Taken]] = {name: [] for name in self._clocks}
        self._marks = dict.fromkeys(self._clocks, 0)
        self._beside: dict[str, list[Beside]] = {name: [] for name in self._clocks}
        """Layers that were simulated in addition to their windows."""
        self._windows: dict[str, int] = dict.fromkeys(self._clocks, 0)
        """Probes of a window."""
        self._common: dict[str, float] = dict.fromkeys(self._clocks, 0.0)
        """Relative half-width common to all windows, from what they leave out."""
        self._intervals: dict[str, tuple[float, float | None]] = {}
        """`_measured` since the last probe of each phase."""
        self._spent_s: dict[str, float] = dict.fromkeys((*KV_PHASES, _ALL), 0.0)
        """Seconds since the warm-up that hang on each phase's efficiency, and all of them."""
        self._run_bytes: list[float] = []
        """Mean extent of one layer's K at each probe of the attention."""

    @property
    def rounds_to_probe(self) -> int:  # type: ignore[override]
        return max(self._clocks["attention"].due - self._steps, 1)

    def _look(self, phase: StreamPhase, step: Step, engine: Engine) -> None:
        if phase != "attention":
            if self._asks(phase):
                self._take(phase, self._layer(phase, step, engine.allocator))
            return
        changed = engine.changes != self._changes or self._steps >= self._clocks[phase].due
        if not changed:
            return
        extents = engine.allocator.extent_count(step.decode)
        tokens = step.context
        if step.lengths is not None:
            tokens = int(self._layout.slots_of(step.lengths).sum())
        placed = (len(step.decode), extents, tokens / extents)
        layer = self._layer(phase, step, engine.allocator)
        if self._asks(phase, placed) and self._take(phase, layer, placed):
            self._run_bytes.append(self._read_bytes(step, engine, tokens / extents))

    def observe(self, step: Step, engine: Engine) -> Efficiency:
        efficiency = super().observe(step, engine)
        self._changes = engine.changes
        return efficiency

    def passed(self, rounds: int, times: StepTimes | None = None) -> None:
        self._steps += rounds
        if times is not None:
            attention_s = total_of(times.attention_s)
            if self._together:  # the weights have the error of the attention
                attention_s += times.weights_s * rounds
            self._spent_s["attention"] += attention_s
            self._spent_s["prefill"] += times.chunk_memory_s * rounds
            self._spent_s["migration"] += (times.migration_s + times.copy_s) * rounds
            self._spent_s[_ALL] += total_of(times.total_s)

    def mark(self) -> None:
        self._spent_s = dict.fromkeys(self._spent_s, 0.0)
        self._marks = {name: len(results) for name, results in self._results.items()}
        self._intervals.clear()
        for clock in self._clocks.values():
            clock.restart(self._steps)

    def _counted(self, phase: str) -> list[Taken]:
        """The probes of a phase that count: after the warm-up, or the last before."""
        results = self._results[phase]
        return results[self._marks[phase] :] or results[-1:]

    def _found(self, phase: StreamPhase) -> list[Any]:
        return [each.result for each in self._counted(phase)]

    def _probes(self, phase: StreamPhase) -> int:
        return len(self._results[phase])

    def _share(self, phase: StreamPhase) -> tuple[float | None, float | None]:
        mean, half = self._interval(phase)
        return (mean if self._results[phase] else None), half

    def _phase_report(self, phase: StreamPhase) -> dict[str, Any]:
        found = super()._phase_report(phase) | {"too_wide": self._too_wide(phase)}
        if phase != "attention":
            return found
        return found | self._descriptors(phase) | {"by_extent": self._by_extent()}

    def _descriptors(self, phase: StreamPhase) -> dict[str, float]:
        """Descriptors of a step, and bytes of one, in the mean of the probes that count; nothing
        where weights are among them, or where layers are not alike, of which those that move more
        are probed more often."""
        counted, kinds = self._counted(phase), self._kinds(phase)
        posted = sum(each.descriptors for each in counted)
        if not posted or self._together or len(kinds) > 1 or self._layout.groups is not None:
            return {}
        peak_ns = math.fsum(each.at_peak_ns for each in counted)
        return {
            "descriptors": posted / len(counted) * len(kinds[0]),
            "descriptor_bytes": peak_ns * self._probe.device.peak_gbps / posted,
        }

    def _errors(self) -> dict[str, float]:
        error = math.hypot(*map(self._error, self._phases))
        return {"throughput_ci95": error} if error else {}

    def _read_bytes(self, step: Step, engine: Engine, run: float) -> float:
        """Mean extent of one layer's K, where requests lie in runs of `run` tokens; where tokens
        are chosen of them, of what is read."""
        if self._layout.sparse is None:
            return run * self._layout.half_bytes
        extents = self._streams.attention(step, engine.allocator, 0)
        read = ~extents.write
        read[: extents.ahead] = False
        return float(extents.size[read].mean()) if read.any() else 0.0

    def _by_extent(self) -> list[list[float]]:
        """Mean extent in bytes and GB/s of each probe of the attention that counts, some of them
        where there are many."""
        points = [
            [round(size), float(f"{each.result.gbps:.5g}")]
            for size, each in zip(self._run_bytes, self._results["attention"], strict=True)
        ][self._marks["attention"] :]
        return points[:: -(-len(points) // MOST_EXTENTS) or 1]

    def _drawn(self, phase: StreamPhase, layer: Layer) -> tuple[list[int], FloatArray | None]:
        """Layers that move something, in order, and of each its share of what they all move, where
        they are not alike: drawn by it, the mean of a time over its bytes is that of all layers
        together."""
        kinds = self._kinds(phase)
        every = sorted(each for kind in kinds for each in kind)
        if len(kinds) == 1 and self._layout.groups is None:
            return every, None
        moved = np.zeros(len(every))
        for kind in kinds:
            moved[np.isin(every, kind)] = layer(kind[0]).size.sum()
        return every, moved / moved.sum() if moved.any() else None

    def _asks(self, phase: str, placed: tuple[float, ...] = ()) -> bool:
        return self._clocks[phase].asks(self._steps, placed, *self._wants(phase))

    def _wants(self, phase: str) -> tuple[bool, int]:
        """Whether the interval of what counts is too wide, as far as two probes show, and how often
        the phase may be probed."""
        if len(self._results[phase]) - self._marks[phase] < 2:
            return False, self._spec.max_probes
        mean, half = self._measured(phase)
        wide = half is not None and half > self._spec.precision * mean
        wide = wide or self._too_wide(phase)
        more = AGAIN if self._error(phase) > self._spec.again / 2 else 1
        return wide, self._spec.max_probes * more

    def _too_wide(self, phase: str) -> bool:
        """Whether the interval that is stated is wider than it may be."""
        mean, half = self._interval(phase)
        return half is not None and half > STATED * self._spec.precision * mean

    def _leaves_out(self, phase: str) -> bool:
        """Whether it is, and most of it is what windows leave out."""
        mean, half = self._interval(phase)
        out = self._common[phase] * mean
        return self._too_wide(phase) and half is not None and 2 * out**2 > half**2

    def _measured(self, phase: str) -> tuple[float, float | None]:
        """Efficiency of the probes that count together, those of large steps for as much more as
        they move, and the half-width of its interval as they spread: where they are few, as those
        of the warm-up do too."""
        if phase not in self._intervals:
            share, half = _ratio(counted := self._counted(phase))
            if len(counted) < RECENT:
                every, spread = _ratio(results := self._results[phase])
                few = math.sqrt(len(results) / max(len(counted), 1))
                half = None if spread is None else share * spread / every * few
            self._intervals[phase] = share, half
        return self._intervals[phase]

    def _interval(self, phase: str) -> tuple[float, float | None]:
        """Mean efficiency, and the half-width of the interval that is stated: of probes that were
        taken until `_measured` was narrow, and with what windows leave out."""
        mean, half = self._measured(phase)
        if half is None:
            return mean, None
        counted = len(self._counted(phase))
        count = counted if counted >= RECENT else len(self._results[phase])
        return mean, stated(mean, half, count, self._common[phase])

    def _error(self, phase: str) -> float:
        """Relative half-width that the interval of a phase adds to the throughput's: admissions are
        taken as unchanged, and what does not hang on the efficiency is exact."""
        mean, half = self._interval(phase)
        if half is None or not self._spent_s[_ALL]:
            return 0.0
        return self._spent_s[phase] / self._spent_s[_ALL] * half / mean

    def _take(self, phase: StreamPhase, layer: Layer, placed: tuple[float, ...] = ()) -> bool:
        """Probe it; False where all that the step moves lies in another memory."""
        results, beside = self._results[phase], self._beside[phase]
        calibrate = self._windows[phase] % EVERY < FIRST or self._leaves_out(phase)
        spread = self._streams.spread(phase)
        every, shares = self._drawn(phase, layer)
        probed = self._probe.measure(
            lambda nth: layer(every[nth]), len(every), spread, self._rng, calibrate, shares
        )
        if not probed.at_peak_ns:
            return False
        if probed.beside is not None:
            beside.append(probed.beside)
        elapsed_ns = probed.elapsed_ns
        if probed.beside is not None or not probed.exact:
            self._windows[phase] += 1
        if not probed.exact:
            mean_ns, half_ns = lost_ns(beside, probed.at_peak_ns)
            elapsed_ns = max(elapsed_ns + mean_ns, probed.least_ns)
            self._common[phase] = half_ns / elapsed_ns
        self._intervals.pop(phase, None)
        at_peak_ns = probed.at_peak_ns
        elapsed_ns = min(max(elapsed_ns, at_peak_ns), at_peak_ns / LEAST)
        results.append(Taken(at_peak_ns, elapsed_ns, probed.result, placed, probed.descriptors))
        last = [
            each for each in results[-RECENT:] if moved(placed, each.placed) <= self._spec.change
        ]
        self.efficiency = self.efficiency._replace(**{phase: _ratio(last)[0]})
        return True


def _ratio(taken: Sequence[Taken]) -> tuple[float, float | None]:
    """Time at the peak over what they take, and the half-width of its interval."""
    return ratio_interval([each.at_peak_ns for each in taken], [each.elapsed_ns for each in taken])


def moved(now: tuple[float, ...], then: tuple[float, ...]) -> float:
    """The largest relative change of placement statistics, of the smaller value."""
    pairs = zip(now, then, strict=True)
    return max((max(new / old, old / new) - 1 for new, old in pairs), default=0.0)


class ProbeClock:
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

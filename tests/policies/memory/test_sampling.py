"""Which probes count for an efficiency, and when does the next one come?"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from policies.allocators.kv_layout import KvLayout
from policies.engines.scheduled_step import Step
from policies.memory.fidelity import AGAIN, FidelitySpec
from policies.memory.interval import confidence_interval, stopped
from policies.memory.probe import Probed
from policies.memory.sampling import SampledMemory
from policies.memory.step_streams import StepStreams
from policies.memory.step_times import Efficiency, StepTimes
from tests.policies.small import MODEL, device

LAYOUT = KvLayout(0, 4096, 2, 2, 16)
"""32 bytes of K a token and layer."""
STREAMS = StepStreams(device(4096, "work.spread=split"), MODEL, 4096)


class Scripted:
    """A probe that finds these shares of the peak one after the other."""

    piece_bytes, wall_s = 1024, 0.5

    def __init__(self, shares: list[float], **found: Any) -> None:
        self.device = device(4096)
        self.memory = self.device.memory
        self.simulated_bytes = 0
        self.shares, self.found = shares, found
        self.asked: list[bool] = []
        self.spreads: set[str] = set()

    def measure(self, layer: Any, layers: int, *how: Any) -> Probed:
        spread, _, calibrate, _ = how
        self.spreads.add(spread)
        self.asked.append(calibrate)
        self.simulated_bytes += 1000
        result = SimpleNamespace(
            gbps=100.0 + len(self.asked), row_hits=3, row_misses=1, row_conflicts=1, commands={},
            simulated_ns=10.0, active_ns=0.0,
        )  # fmt: skip
        plain = Probed(100.0, 100.0 / self.shares[len(self.asked) - 1], result, True)
        return plain._replace(**self.found)


def memory(probe: Scripted, **spec: Any) -> SampledMemory:
    plain = {"every_steps": 1, "spacing": 0.0, "precision": 9.0}
    return SampledMemory(
        Efficiency(), {}, FidelitySpec(**{**plain, **spec}), probe, LAYOUT, STREAMS, 1  # type: ignore[arg-type]
    )  # fmt: skip


def batch(extents: int = 10, requests: int = 2, changes: int = 0) -> tuple[Step, Any]:
    """A step that decodes, of requests in so many extents of ten tokens; its engine."""
    step = Step(np.arange(requests), 10 * extents, [], [], 0, "batch")
    allocator = SimpleNamespace(extent_count=lambda _: extents)
    return step, SimpleNamespace(allocator=allocator, changes=changes)


def attention(memory: SampledMemory, *extents: int) -> list[float]:
    """The efficiency at each step, of batches of so many extents."""
    found = []
    for each in extents:
        found.append(memory.observe(*batch(each)).attention)
        memory.passed(1)
    return found


def harmonic(*shares: float) -> Any:
    return pytest.approx(len(shares) / sum(1 / share for share in shares))


def relative(*shares: float) -> float:
    """Half-width over mean, of the time a byte."""
    mean, half = confidence_interval([1 / share for share in shares])
    assert half is not None
    return half / mean


def test_is_an_efficiency_the_mean_time_of_the_last_four_probes() -> None:
    a, b, c, d, e = shares = [0.5, 0.25, 0.8, 1.0, 0.2]
    found = attention(memory(Scripted(shares)), 10, 10, 10, 10, 10)
    means = [harmonic(*last) for last in ([a], [a, b], [a, b, c], [a, b, c, d], [b, c, d, e])]
    assert found == means


def test_do_probes_of_another_placement_stay_out_of_the_mean() -> None:
    # a change of a fifth is still alike: 10 -> 12; 20 is not
    found = attention(memory(Scripted([0.5, 0.25, 0.8, 0.4])), 10, 12, 20, 12)
    assert found == [0.5, harmonic(0.5, 0.25), 0.8, harmonic(0.5, 0.25, 0.4)]


def test_does_the_report_count_what_came_after_the_warm_up() -> None:
    sampled = memory(Scripted([0.5, 0.2, 0.4, 0.6]))
    attention(sampled, 10)
    sampled.mark()
    before = sampled.report(2000)
    assert before["phases"]["attention"]["efficiency"] == 0.5  # the last before, where none came
    assert before["phases"]["attention"]["by_extent"] == []
    attention(sampled, 10, 20, 40)
    found = sampled.report(16_000)
    phase = found["phases"]["attention"]
    assert (phase["efficiency"], phase["probes"]) == (harmonic(0.2, 0.4, 0.6), 4)
    own = stopped(relative(0.5, 0.2, 0.4, 0.6), 4) * math.sqrt(4 / 3) * phase["efficiency"]
    assert phase["ci95"] == pytest.approx(own, rel=1e-5)
    assert (phase["row_hit_rate"], phase["banks"]["row_hits"]) == (0.6, 0.6)
    assert phase["by_extent"] == [[320, 102.0], [320, 103.0], [320, 104.0]]
    assert (found["probes"], found["simulated_bytes"]) == (4, 4000)
    assert (found["simulated_share"], found["probe_wall_s"]) == (0.25, 0.5)
    assert found["efficiency"] == {
        "weights": 1.0, "attention": phase["efficiency"], "prefill": 1.0, "migration": 1.0
    }  # fmt: skip
    assert found["phases"]["prefill"]["row_hit_rate"] == 0
    assert sampled.report(0)["simulated_share"] == 4000


def probed_at(
    shares: list[float], extents: Callable[[int], int] = lambda step: 10, **spec: Any
) -> list[int]:
    """The steps at which attention was probed, of as many as there are shares; each of them has
    changed."""
    probe = Scripted(shares)
    sampled, found = memory(probe, **spec), []
    for step in range(len(shares)):
        before = len(probe.asked)
        sampled.observe(*batch(extents(step), changes=step))
        sampled.passed(1)
        found += [step] * (len(probe.asked) - before)
    return found


@pytest.mark.parametrize(
    ("spec", "extents", "expected"),
    [
        ({"every_steps": 7}, lambda step: 10, [0, 7, 14]),
        ({"every_steps": 7, "max_probes": 2}, lambda step: 10, [0, 7]),
        # after step 4 each waits for as long as it took so far
        ({"every_steps": 4, "spacing": 1.0}, lambda step: 10, [0, 4, 8, 16]),
        # placement moves by a fifth, which does not ask, and by more
        ({"every_steps": 99}, lambda step: 12 if step > 5 else 10, [0]),
        ({"every_steps": 99}, lambda step: 13 if step > 5 else 10, [0, 6]),
        ({"every_steps": 99}, lambda step: 10 if step > 5 else 13, [0, 6]),
        # near the last probe only a change to more than four times asks
        ({"every_steps": 99, "spacing": 2.0}, lambda step: 40 if step > 5 else 10, [0]),
        ({"every_steps": 99, "spacing": 2.0}, lambda step: 41 if step > 5 else 10, [0, 6]),
    ],
)
def test_when_does_the_next_probe_come(
    spec: dict[str, Any], extents: Callable[[int], int], expected: list[int]
) -> None:
    assert probed_at([0.5] * 21, extents, **spec) == expected


def spent(**seconds: float) -> StepTimes:
    """The times of a step of a second, of which no compute hangs on memory."""
    one = np.ones(1)
    plain = {"weights_s": 0.2, "attention_s": 0.5 * one, "prefill_s": 0.3, "migration_s": 0.0}
    rest = {"overhead_s": 0.0, "total_s": one, "compute_s": 0 * one}
    return StepTimes(**{**plain, **rest, **seconds})  # type: ignore[arg-type]


@pytest.mark.parametrize("together", [False, True])
def test_is_a_runs_error_that_of_its_phases_by_the_time_that_hangs_on_them(together: bool) -> None:
    sampled = memory(Scripted([0.4, 0.5, 0.5, 0.25]), max_probes=2)
    sampled._together = object() if together else None  # type: ignore[assignment]
    for _ in range(2):
        sampled._take("attention", lambda _: None)  # type: ignore[arg-type, return-value]
        sampled.passed(1, spent(chunk_memory_s=0.02))
    sampled._run_bytes = [320.0] * 2
    for _ in range(2):
        sampled._take("prefill", lambda _: None)  # type: ignore[arg-type, return-value]
    attention = (0.7 if together else 0.5) * stopped(relative(0.4, 0.5), 2)
    prefill = 0.02 * stopped(relative(0.5, 0.25), 2)  # of the prefill FLOPs do not
    whole = math.hypot(attention, prefill)
    assert sampled.report(0)["throughput_ci95"] == pytest.approx(whole)
    sampled.mark()
    assert "throughput_ci95" not in sampled.report(0)


def test_is_a_phase_probed_on_where_the_throughput_hangs_on_its_interval() -> None:
    for seconds, probes in ((1.0, 3 * AGAIN), (0.001, 3)):
        probe = Scripted([0.9, 0.1] * 50)
        sampled = memory(probe, max_probes=3, precision=0.02)
        for i in range(60):
            sampled.observe(*batch(changes=i))
            sampled.passed(1, spent(attention_s=np.full(1, seconds)))
        assert len(probe.asked) == probes

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
from policies.memory.fidelity import AGAIN, NO_PROBE, FidelitySpec
from policies.memory.interval import confidence_interval, stopped
from policies.memory.probe import Beside, Probed
from policies.memory.sampling import SampledMemory
from policies.memory.step_streams import StepStreams
from policies.memory.step_times import Efficiency, StepTimes
from tests.policies.small import MODEL, device

LAYOUT = KvLayout(0, 4096, 2, 2, 16)
"""32 bytes of K a token and layer."""
STREAMS = StepStreams(device(4096, "work.spread=split"), MODEL, 4096)
T2 = 4.302653
"""Student's t for 95 % at two degrees of freedom."""


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


@pytest.mark.parametrize(
    ("share", "expected"), [(1.5, 1.0), (1e-9, 1e-6)], ids=["above the peak", "nothing"]
)
def test_is_an_efficiency_held_between_nothing_and_the_peak(share: float, expected: float) -> None:
    assert attention(memory(Scripted([share])), 10) == [expected]


def test_does_a_small_probe_count_for_little_in_the_steps_that_follow() -> None:
    # a byte of the second step takes a hundred times as long, and the step has a thousandth of them
    probe = Scripted([0.5, 0.005])
    sampled, there = memory(probe), {"chunks": [None]}
    step, engine = batch()
    step = step._replace(decode=step.decode[:0], **there)
    assert sampled.observe(step, engine).prefill == 0.5
    probe.found = {"at_peak_ns": 0.1, "elapsed_ns": 20.0}
    sampled.passed(1)
    assert sampled.observe(step, engine).prefill == pytest.approx(100.1 / 220)


def test_does_a_window_that_loses_more_than_it_takes_last_as_long_as_its_bytes_need() -> None:
    # a layer that took 1,000 ns less than its window said, of four times the bytes
    probe = Scripted([0.5], exact=False, beside=Beside(400.0, -1000.0), least_ns=125.0)
    assert attention(memory(probe), 10) == [100 / 125]


def test_does_what_whole_layers_lost_lengthen_the_windows_that_follow() -> None:
    # windows of 100 ns at the peak are estimated at 200 ns; layers of 400 ns lost 40: 2 a root
    probe = Scripted([0.5] * 2, exact=False, beside=Beside(400.0, 40.0))
    sampled = memory(probe)
    lost = 2 * math.sqrt(100)
    assert attention(sampled, 10, 10) == [pytest.approx(100 / (200 + lost))] * 2
    probe.found["beside"] = Beside(400.0, 120.0)  # drifts 2, 2 and 6: mean 10/3, variance 16/3
    probe.shares.append(0.5)
    attention(sampled, 10)
    mean_ns, half_ns = (each * math.sqrt(100) for each in (10 / 3, T2 * math.sqrt(16 / 9)))
    taken_ns = [200 + lost, 200 + lost, 200 + mean_ns]
    mean = 300 / sum(taken_ns)
    own = mean * stopped(relative(*(1 / each for each in taken_ns)), 3)
    phase = sampled.report(0)["phases"]["attention"]
    assert phase["efficiency"] == pytest.approx(mean)
    half = math.hypot(own, half_ns / (200 + mean_ns) * mean)
    assert phase["ci95"] == pytest.approx(half, rel=1e-5)


def test_are_the_first_four_of_every_32_windows_calibrated() -> None:
    probe = Scripted([0.5] * 40, exact=False)
    attention(memory(probe), *[10] * 40)
    assert [at for at, along in enumerate(probe.asked) if along] == [0, 1, 2, 3, 32, 33, 34, 35]
    # layers that fit a window are whole already
    whole = Scripted([0.5] * 6)
    attention(memory(whole), *[10] * 6)
    assert whole.asked == [True] * 6


def test_is_a_layer_simulated_beside_each_window_while_windows_leave_out_too_much() -> None:
    for drift, further in ((0.01, [False] * 3), (0.06, [True, True, False])):
        probe = Scripted([0.5] * 8, exact=False)
        sampled = memory(probe, precision=0.02)
        for lost in (1 - drift, 1.0, 1.0, 1 + drift, 1.0, 1.0, 1.0):
            probe.found["beside"] = Beside(100.0, 200.0 * lost)
            attention(sampled, 10)
        assert probe.asked == [True] * 4 + further


def test_do_few_probes_spread_as_those_of_the_warm_up_do() -> None:
    before, after = [0.5, 0.4, 0.6, 0.5, 0.45], [0.3]
    sampled = memory(Scripted(before + after))
    attention(sampled, *[10] * 5)
    sampled.mark()
    attention(sampled, 10)
    phase = sampled.report(0)["phases"]["attention"]
    every = stopped(relative(*before, *after), 6) * math.sqrt(6 / 1)
    assert (phase["efficiency"], phase["ci95"]) == pytest.approx((0.3, 0.3 * every))


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


def test_how_many_descriptors_has_a_step_and_how_long_are_they() -> None:
    probe = Scripted([0.5] * 2, descriptors=8)
    sampled = memory(probe)
    attention(sampled, 10, 20)
    phases = sampled.report(1)["phases"]
    layers = len(STREAMS.kinds("attention", LAYOUT)[0])
    assert phases["attention"]["descriptors"] == 8 * layers
    assert phases["attention"]["descriptor_bytes"] == 100.0 * probe.device.peak_gbps / 8
    assert "descriptors" not in phases["prefill"]
    plain = memory(Scripted([0.5]))
    attention(plain, 10)
    assert "descriptors" not in plain.report(1)["phases"]["attention"]


def test_are_at_most_forty_probes_listed() -> None:
    for probes, listed in ((40, 40), (41, 21), (90, 30)):
        sampled = memory(Scripted([0.5] * probes))
        attention(sampled, *[10] * probes)
        assert len(sampled.report(1)["phases"]["attention"]["by_extent"]) == listed


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


def test_how_many_steps_pass_until_a_probe_is_due() -> None:
    sampled = memory(Scripted([0.5] * 3), every_steps=10, max_probes=2)
    assert sampled.rounds_to_probe == 1
    attention(sampled, 10)
    assert sampled.rounds_to_probe == 9
    sampled.passed(30)
    assert sampled.rounds_to_probe == 1
    attention(sampled, 10)
    assert sampled.rounds_to_probe == NO_PROBE - 32
    sampled.mark()
    assert sampled.rounds_to_probe == 1


def test_does_a_wide_interval_ask_for_more_probes() -> None:
    # half-widths: 0.64 of two, 0.12 of three, 0.065 of four and 0.044 of five; a tenth is 0.055
    shares = [0.5, 0.6] + [0.55] * 38
    assert probed_at(shares, every_steps=8, precision=0.1) == [0, 8, 9, 10, 11, 19, 27, 35]


def test_does_an_interval_ask_for_more_probes_that_is_stated_too_wide() -> None:
    # half-width of three probes: 0.119, and 0.223 is stated, where 0.18 would do, or 0.24
    shares = [0.5, 0.54, 0.545] + [0.55] * 37
    for precision, expected in ((0.12, [0, 8, 9, 10, 18, 26, 34]), (0.16, [0, 8, 9, 17, 25, 33])):
        assert probed_at(shares, every_steps=8, precision=precision) == expected


def test_does_the_report_say_which_interval_stayed_too_wide() -> None:
    for precision in (0.02, 0.2):
        sampled = memory(Scripted([0.5, 0.55, 0.5, 0.55]), precision=precision, max_probes=4)
        attention(sampled, *[10] * 4)
        phases = sampled.report(0)["phases"]
        found = phases["attention"]
        assert found["too_wide"] == (found["ci95"] > 1.5 * precision * found["efficiency"])
        assert (found["too_wide"], phases["prefill"]["too_wide"]) == (precision < 0.1, False)


def test_is_a_batch_that_stays_not_probed_again() -> None:
    probe = Scripted([0.5] * 3)
    sampled = memory(probe, every_steps=50)
    for extents in (10, 20, 40):
        sampled.observe(*batch(extents, changes=7))
        sampled.passed(1)
    assert len(probe.asked) == 1


@pytest.mark.parametrize("phase", ["prefill", "migration"])
def test_is_a_phase_probed_where_it_comes_and_is_not_given(phase: str) -> None:
    there = {"chunks": [None]} if phase == "prefill" else {"migrations": [None]}
    for given in (None, 0.7):
        probe = Scripted([0.25])
        sampled = memory(probe, **({} if given is None else {phase: given}))
        step, engine = batch()
        found = sampled.observe(step._replace(decode=step.decode[:0], **there), engine)
        assert getattr(found, phase) == (0.25 if given is None else 1.0)
        assert len(probe.asked) == (given is None)
        assert probe.spreads <= {"split" if phase == "prefill" else "slice"}


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

"""What random access costs: are the streams what they claim, do the curves make sense, does the
verdict follow from them?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hwmodel.measure.racm import (
    LARGEST_EXTENT,
    Condition,
    Curve,
    SizePoint,
    check_extent,
    conditions,
    curves,
    descriptor_gbps,
    extent_sizes,
)
from hwmodel.measure.stream import TILE, bursts, kinds, random_starts, sequential_starts
from hwmodel.specs.device import load_device
from sweeps.ask.memory_curve import CurveQuestion
from sweeps.ask.random_curves import RandomCurves
from sweeps.report.markdown import markdown

KIB = 1024
MEMORY, DEVICE = "lpddr5-6400-x16", "mlu370-x4"


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


# streams


@pytest.mark.parametrize("share", [1.0, 0.75, 0.5, 0.25, 0.0])
def test_every_four_accesses_hold_the_share_of_reads(share: float) -> None:
    written = kinds(rng(), 400, share).reshape(100, 4)
    assert (written.sum(axis=1) == round(4 * (1 - share))).all()


@pytest.mark.parametrize("share", [0.6, -0.25, 1.5])
def test_a_share_that_is_no_quarter_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="quarters"):
        kinds(rng(), 8, share)


def test_random_extents_are_aligned_and_inside_and_cut_into_bursts() -> None:
    start = random_starts(rng(), 1000, 96, 10_000)
    assert (start % 96 == 0).all() and start.min() >= 0 and start.max() + 96 <= 10_000
    assert bursts(np.array([96, 0]), 96, 32).tolist() == [96, 128, 160, 0, 32, 64]


def test_a_sequential_stream_goes_round_the_end() -> None:
    start = sequential_starts(rng(), 10, 4 * TILE)
    assert set(np.diff(start).tolist()) == {TILE, -3 * TILE}


# curves


def test_extents_are_powers_of_two_from_a_burst_and_the_one_asked_for() -> None:
    memory = load_device(MEMORY).memory
    assert extent_sizes(memory) == [32 << i for i in range(16)]
    assert extent_sizes(memory, 96)[:4] == [32, 64, 96, 128]


@pytest.mark.parametrize("extent", [0, 16, 48, 2 * LARGEST_EXTENT])
def test_an_extent_that_cannot_be_is_refused(extent: int) -> None:
    with pytest.raises(ValueError, match="multiple of a burst"):
        check_extent(load_device(MEMORY).memory, extent)
    with pytest.raises(ValueError, match="multiple of a burst"):
        curves(MEMORY, extents=[extent])


SIZES = [32, 512, 16 * KIB, LARGEST_EXTENT]


@pytest.fixture(scope="module")
def channel() -> list[Curve]:
    shares = [c for c in conditions(load_device(MEMORY)) if c.read_queue == 32]
    return curves(MEMORY, extents=SIZES, only=shares, replications=2)


def test_longer_extents_are_faster_and_the_longest_are_sequential(channel: list[Curve]) -> None:
    assert [curve.condition.read_share for curve in channel] == [1.0, 0.75, 0.5]
    for curve in channel:
        alpha = [np.mean(curve.at(size).alpha) for size in SIZES]
        assert alpha[0] < alpha[1] < alpha[2] < 1.02
        assert alpha[-1] == pytest.approx(1, abs=0.02)
        hits = [curve.at(size).row_hit_rate for size in SIZES]
        assert hits == sorted(hits) and hits[-1] > 0.95


def test_a_device_is_bound_by_its_descriptors_then_by_its_streams() -> None:
    device = load_device(DEVICE)
    described = conditions(device)[0]
    assert described.level == "device"
    (curve,) = curves(DEVICE, extents=[64, 16 * KIB], only=[described], replications=2)
    assert np.mean(curve.at(64).gbps) == pytest.approx(descriptor_gbps(device, 64), rel=0.03)
    assert 0.75 < np.mean(curve.at(16 * KIB).alpha) < 1
    assert np.mean(curve.sequential_gbps) > 0.9 * device.peak_gbps


def test_the_queue_depth_and_the_window_of_a_condition_take_effect() -> None:
    described = conditions(load_device(DEVICE))[0]
    narrow = replace(described, window_bytes=512)
    shallow = replace(described, read_queue=4, write_queue=4)
    first, *others = curves(
        DEVICE, extents=[16 * KIB], only=[described, narrow, shallow], replications=2
    )
    for other in others:
        assert np.mean(other.at(16 * KIB).gbps) < 0.8 * np.mean(first.at(16 * KIB).gbps)


# the verdict

BASE = Condition("channel", 1.0, 32, 32, None)


def made(
    alpha: dict[int, tuple[float, ...]], *others: tuple[Condition, float], extent: int = 64
) -> RandomCurves:
    """A result with these alphas by extent, and others by condition, about 0.01 wide."""

    def curve(condition: Condition, values: dict[int, tuple[float, ...]]) -> Curve:
        points = (SizePoint(size, found, found, 0.5) for size, found in values.items())
        return Curve(condition, (1.0,) * 3, tuple(points))

    beside = [curve(c, {size: around(mean) for size in alpha}) for c, mean in others]
    return RandomCurves(load_device(MEMORY), extent, 0.7, [curve(BASE, alpha), *beside])


def around(mean: float) -> tuple[float, ...]:
    return mean - 0.001, mean, mean + 0.001


WRITES, DEEP = replace(BASE, read_share=0.5), replace(BASE, read_queue=64, write_queue=64)


@pytest.mark.parametrize(
    ("alpha", "others", "answer", "flipping"),
    [
        ({32: around(0.3), 64: around(0.9)}, [(WRITES, 0.8)], "not random-access bound", []),
        ({32: around(0.3), 64: around(0.5)}, [(WRITES, 0.4)], "random-access bound", []),
        ({64: around(0.5)}, [(WRITES, 0.4), (DEEP, 0.8)], "undecided", [DEEP]),
        # intervals that straddle the threshold
        ({64: around(0.9)}, [(WRITES, 0.7)], "undecided", [WRITES]),
        ({64: (0.6, 0.7, 0.8)}, [(WRITES, 0.4)], "undecided", None),
    ],
)
def test_the_verdict_is_where_every_condition_lies(
    alpha: dict[int, tuple[float, ...]], others: list[tuple[Condition, float]], answer: str,
    flipping: list[Condition] | None,
) -> None:  # fmt: skip
    verdict = made(alpha, *others).verdict("channel")
    assert verdict.answer == answer and verdict.longest == 64
    assert flipping is None or [condition for condition, _ in verdict.flipping] == flipping
    assert (verdict.reached_at is None) == (alpha[64] == around(0.5))


def test_variants_are_a_range_and_one_that_answers_otherwise_is_named() -> None:
    found = made({64: around(0.9)}, (WRITES, 0.8))
    same = replace(found, plausible={"deep": made({64: around(0.95)}).curves})
    assert same.verdict("channel").answer == "not random-access bound"
    other = replace(found, plausible={**same.plausible, "flat": made({64: around(0.6)}).curves})
    verdict = other.verdict("channel")
    assert (verdict.answer, verdict.turning) == ("undecided", ["flat"])


def test_the_variants_of_a_device_are_simulated_at_the_extent_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sweeps.ask.random_curves.extent_sizes", lambda *_: [4 * KIB, 16 * KIB])
    monkeypatch.setattr("hwmodel.measure.racm.conditions", lambda d: conditions(d)[:1])
    question = CurveQuestion.of({"device": DEVICE, "set": ["controller.read_queue=32"]})
    found = question.answer()
    names = ["two banks a piece", "8-bank mode", "no bank hash", "no channel hash"]
    assert list(found.plausible) == names and len(found.left_out) == 4
    assert found.left_out["nothing lost on the way"] == "it divides out of alpha"
    assert all(len(each.points) == 1 for (each,) in found.plausible.values())
    alpha = found.record()["verdicts"][0]["plausible"]
    assert alpha[1]["variant"] == "8-bank mode" and alpha[1]["alpha"] > 0.97
    page = markdown([question.section(found)])
    assert "8-bank mode" in page and "pages of 4 KiB" in page

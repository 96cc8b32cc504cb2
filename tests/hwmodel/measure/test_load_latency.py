"""Is latency under load what closed forms, the kernel's own figures and saturation say?"""

from __future__ import annotations

import pytest

from hwmodel.measure import load_latency
from hwmodel.measure.bandwidth import measure
from hwmodel.measure.channels import Channels
from hwmodel.measure.load_latency import (
    NEARLY,
    LatencyCurve,
    LoadPoint,
    _Stream,
    latency_curves,
    offered_shares,
)
from hwmodel.measure.pattern import channel_latency
from hwmodel.specs.device import Device, load_device

MEMORY = "lpddr5-6400-x16"
CALM = ["controller.refresh=none", "controller.page_policy=closed"]


def curve(device: Device, extent: int, write_share: float = 0.0) -> LatencyCurve:
    (found,) = latency_curves(device, [(extent, write_share)])
    return found


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short runs."""
    monkeypatch.setattr(load_latency, "BYTES", 1 << 16)
    monkeypatch.setattr(load_latency, "CHANNEL_BYTES", 1 << 14)
    monkeypatch.setattr(load_latency, "DEPENDENT", 200)


def burst(device: Device) -> int:
    return device.memory.organisation.burst_bytes


def test_an_isolated_read_takes_the_sum_of_its_timings() -> None:
    """HBM2 at 1 ns a clock: tRCDRD 12, RL 18, two clocks of data."""
    device = load_device("hbm2-2.0", CALM)
    assert _Stream(device, burst(device), 0.0).dependent().latency_ns["p50"] == 12 + 18 + 2


@pytest.mark.parametrize(("policy", "row"), [("closed", "closed"), ("open", "miss")])
def test_a_dependent_read_is_an_isolated_one(policy: str, row: str) -> None:
    """Of a closed bank, or of one with another row open."""
    device = load_device(MEMORY, [CALM[0], f"controller.page_policy={policy}"])
    found = _Stream(device, burst(device), 0.0).dependent().latency_ns
    assert found["p50"] == pytest.approx(channel_latency(device, row))  # type: ignore[arg-type]


def test_where_no_read_waits_for_a_place_latency_is_the_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bursts from completions; the kernel's counts from entry, all of them."""
    monkeypatch.setattr(load_latency, "WARM", 0.0)
    device = load_device(MEMORY)
    stream = _Stream(device, burst(device), 0.3)
    runs: list[Channels] = []

    class Kept(Channels):
        def __init__(self, device: Device) -> None:
            super().__init__(device)
            runs.append(self)

    monkeypatch.setattr(load_latency, "Channels", Kept)
    light, heavy = (stream.at(offered).latency_ns for offered in (0.05, 0.95))
    kernels, entered = (run.statistics()["latency_ns"] for run in runs)
    assert kernels is not None and entered is not None
    assert light == pytest.approx(kernels)
    assert heavy["mean"] > 10 * entered["mean"]  # from arrival: the wait for the queue counts


@pytest.mark.parametrize(("name", "pattern"), [(MEMORY, "random_64B"), ("hbm3-6.4", "random_4KiB")])
def test_saturated_is_what_the_pattern_reaches(name: str, pattern: str) -> None:
    """Within 2 %: a pattern runs 32 times as long, over other places."""
    device, extent = load_device(name), {"random_64B": 64, "random_4KiB": 4096}[pattern]
    saturated, _ = _Stream(device, extent, 0.0).saturated_gbps()
    assert saturated == pytest.approx(measure(device, pattern)["bandwidth_gbps"], rel=0.02)


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("name", [MEMORY, "mlu370-x4"])
def test_latency_rises_with_load_up_to_saturation(name: str) -> None:
    device = load_device(name)
    once, again = (curve(device, 512, 0.25) for _ in range(2))
    assert once == again
    means = [load.latency_ns["mean"] for load in once.loads]
    assert means[-1] > 2 * means[0] > once.unloaded.latency_ns["mean"]
    for load in once.loads:
        assert load.offered is not None and load.gbps < 1.05 * once.saturated_gbps
        assert load.gbps == pytest.approx(load.offered * device.peak_gbps, rel=0.1)
        order = [load.latency_ns[part] for part in ("p50", "p90", "p99", "max")]
        assert order == sorted(order)
    assert once.knee_gbps is not None and 0 < once.knee_gbps < once.loads[-1].gbps


def test_the_knee_is_where_mean_latency_is_twice_the_unloaded_one() -> None:
    def load(gbps: float, mean: float) -> LoadPoint:
        return LoadPoint(None, gbps, {"mean": mean}, 1, 0.0)

    loads = load(10.0, 75.0), load(20.0, 125.0), load(30.0, 500.0)
    assert LatencyCurve(64, 0.0, 40.0, load(9.0, 50.0), loads).knee_gbps == 15.0
    assert LatencyCurve(64, 0.0, 40.0, load(9.0, 50.0), loads[:1]).knee_gbps is None
    assert LatencyCurve(64, 0.0, 40.0, load(9.0, 25.0), loads).knee_gbps == 5.0


def test_loads_are_finer_below_saturation() -> None:
    assert offered_shares(0.205 / NEARLY) == [0.05, 0.1, 0.15, 0.16, 0.17, 0.18, 0.19, 0.2]
    assert offered_shares(0.03) == [0.01, 0.02] and not offered_shares(0.005)


@pytest.mark.parametrize("extent", [48, 0, 128 << 10])
def test_an_extent_that_cannot_be_read_is_refused(extent: int) -> None:
    with pytest.raises(ValueError, match="expected a multiple of a burst, 32 B, up to 64 KiB"):
        curve(load_device(MEMORY), extent)

"""Does `bandwidth` show latency under load, and extents and mixes of the user's own?"""

from __future__ import annotations

import pytest

from hwmodel.measure import load_latency
from tests.sweeps.cli.test_memory_commands import MEMORY, found

TIMES = {"wall_s", "threads"}


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short runs."""
    monkeypatch.setattr(load_latency, "BYTES", 1 << 16)
    monkeypatch.setattr(load_latency, "DEPENDENT", 100)
    monkeypatch.setattr(load_latency, "ACCESSES", 400)
    monkeypatch.setattr("hwmodel.measure.bandwidth.CHANNEL_BYTES", 1 << 18)


def test_latency_has_a_curve_an_extent_and_mix_with_its_knee() -> None:
    done = found("memory", "latency", MEMORY)
    mixes = [(curve["extent_bytes"], curve["write_share"]) for curve in done["curves"]]
    assert mixes == [(64, 0), (64, 0.25), (64, 0.5), (512, 0), (4096, 0)]
    assert done["seed"] == load_latency.SEED and done["knee_factor"] == 2
    for curve in done["curves"]:
        assert curve["unloaded"]["offered"] is None
        for load in (curve["unloaded"], *curve["loads"]):
            assert set(load["read_latency_ns"]) == {"mean", "p50", "p90", "p99", "max"}
            writes = curve["write_share"] > 0 and load["offered"] is not None
            assert (load["write_latency_ns"] is not None) == writes
            assert load["bandwidth_gbps"] < 1.05 * curve["saturated_gbps"]
        assert 0 < curve["knee_gbps"] < curve["saturated_gbps"] < done["peak_gbps"]
    shares = [curve["write_share"] for curve in
              found("memory", "latency", MEMORY, "--extent", "1KiB")["curves"]]  # fmt: skip
    assert shares == [0, 0.25, 0.5]


def test_an_extent_and_a_mix_are_a_pattern_next_to_the_others() -> None:
    asked = ("memory", MEMORY, "--pattern", "sequential", "--extent", "512B")
    sequential, own = found(*asked, "--writes", "25")
    assert (sequential["pattern"], own["pattern"]) == ("sequential", "random_512B_w25")
    written = own["commands"]["WR"] / (own["commands"]["WR"] + own["commands"]["RD"])
    assert written == pytest.approx(0.25, abs=0.05)
    every = found("memory", MEMORY, "--extent", "512B", "--writes", "25%")
    assert every[-1]["cycles"] == own["cycles"]


def test_an_extent_that_a_shipped_pattern_has_is_that_pattern() -> None:
    plain = found("memory", MEMORY)
    again = found("memory", MEMORY, "--extent", "512B")
    for item in (*plain, *again):
        for name in TIMES:
            del item[name]
    assert again == plain

"""Do replay, bandwidth and audit keep the contract on a user's own traces?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sweeps.cli.test_command_line import bankwise

MEMORY = "lpddr5-6400-x16"
KEYS = {
    "device", "pattern", "requests", "bytes", "cycles", "tck_ns", "bandwidth_gbps", "peak_gbps",
    "utilization", "bound_gbps", "row_hits", "row_misses", "row_conflicts", "commands",
    "latency_ns", "energy_nj", "threads", "wall_s",
}  # fmt: skip


def found(*arguments: str | Path) -> Any:
    """The JSON that a command prints."""
    done = bankwise(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """2,000 accesses in address order, every fifth a write."""
    lines = [f"{'W' if i % 5 == 0 else 'R'} {32 * i:#x}" for i in range(2000)]
    (tmp_path / "trace.txt").write_text("\n".join(lines))
    return tmp_path / "trace.txt"


def test_replay_gives_every_figure_of_the_contract(trace: Path) -> None:
    one = found("replay", "mlu370-x4", trace)
    assert set(one) >= KEYS
    assert (one["device"], one["requests"], one["bytes"]) == ("mlu370-x4", 2000, 64000)
    assert one["peak_gbps"] == pytest.approx(307.2)
    assert one["commands"]["RD"] == 1600 and one["commands"]["WR"] == 400
    assert 0 < one["bandwidth_gbps"] <= one["peak_gbps"]


LOGGED = [["mlu370-x4"], [MEMORY], ["a100-80gb", "--channel"]]


@pytest.mark.parametrize("arguments", LOGGED)
def test_a_command_log_passes_the_audit(arguments: list[str], trace: Path, tmp_path: Path) -> None:
    device, *rest = arguments
    assert (
        bankwise("replay", device, trace, *rest, "--commands", tmp_path / "log.csv").returncode == 0
    )
    done = bankwise("audit", device, tmp_path / "log.csv")
    assert done.returncode == 0, done.stdout
    assert "0 violations" in done.stdout


def test_a_log_edited_by_hand_fails_the_audit(trace: Path, tmp_path: Path) -> None:
    bankwise("replay", MEMORY, trace, "--commands", tmp_path / "log.csv")
    lines = (tmp_path / "log.csv").read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if ",RD," in line)
    lines[at] = lines[at - 1].split(",")[0] + "," + lines[at].split(",", 1)[1]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    done = bankwise("audit", MEMORY, tmp_path / "log.csv")
    assert done.returncode == 1
    assert "violations" in done.stdout


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Curves and patterns over few bytes."""
    monkeypatch.setattr("hwmodel.measure.racm.CHANNEL_BYTES", 1 << 16)
    monkeypatch.setattr("hwmodel.measure.racm.DEVICE_BYTES", 1 << 16)
    monkeypatch.setattr("hwmodel.measure.racm.LEAST_NS", 200.0)
    monkeypatch.setattr("hwmodel.measure.racm.WARMUP_NS", 200.0)
    monkeypatch.setattr("hwmodel.measure.racm.LARGEST_EXTENT", 32 << 10)
    monkeypatch.setattr("hwmodel.measure.bandwidth.CHANNEL_BYTES", 1 << 16)


CONDITION = {"level", "read_share", "read_queue", "write_queue", "window_bytes"}


@pytest.mark.usefixtures("brief")
def test_a_curve_gives_curves_with_their_conditions_and_a_verdict_a_level() -> None:
    done = found("memory", "curve", "mlu370-x4", "--extent", "4KiB", "--threshold", "0.5")
    assert (done["device"], done["extent_bytes"], done["threshold"]) == ("mlu370-x4", 4096, 0.5)
    assert len(done["digest"]) == 64 and len(done["seeds"]) >= 3
    assert [verdict["level"] for verdict in done["verdicts"]] == ["device", "channel"]
    for verdict in done["verdicts"]:
        assert verdict["low"] <= verdict["alpha"] <= verdict["high"]
        assert "4 KiB" in verdict["text"] and verdict["answer"] in verdict["text"]
        assert all(set(by) == CONDITION | {"alpha", "low", "high"} for by in verdict["flipped_by"])
    curves = done["curves"]
    assert {c["read_share"] for c in curves} == {1.0, 0.75, 0.5}
    assert {c["read_queue"] for c in curves} == {16, 32, 64}
    windows = {c["window_bytes"] for c in curves if c["level"] == "device"}
    assert windows == {8192, 16384, 32768, 65536}
    assert {c["window_bytes"] for c in curves if c["level"] == "channel"} == {None}
    assert sum(c["described"] for c in curves) == 2
    for curve in curves:
        assert set(curve) == CONDITION | {"described", "sequential_gbps", "points"}
        assert [p["extent_bytes"] for p in curve["points"]] == [32 << i for i in range(11)]
        for point in curve["points"]:
            names = {"extent_bytes", "gbps", "alpha", "low", "high", "row_hit_rate"}
            assert set(point) == names
            assert point["gbps"] > 0 and 0 <= point["row_hit_rate"] <= 1
            assert point["low"] <= point["alpha"] <= point["high"]
    quick = found("memory", "curve", "mlu370-x4", "--extent", "4KiB", "--quick")
    assert [v["alpha"] for v in quick["verdicts"]] == [v["alpha"] for v in done["verdicts"]]
    assert [len(curve["points"]) for curve in quick["curves"]] == [1, 1]
    assert quick["verdicts"][0]["text"].endswith("conditions and variants were not simulated.")


@pytest.mark.usefixtures("brief")
def test_devices_puts_what_is_simulated_beside_the_bounds_of_every_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = ["mlu370-x4", MEMORY, "hbm3-6.4"]
    monkeypatch.setattr("sweeps.cli.catalogue.device_names", lambda: few)
    text = bankwise("list", "devices", "--simulate").stdout
    assert "simulated" in text and "tRRD, tFAW" in text
    # without refresh: how much of it a short run meets is chance
    asked = ("list", "devices", "--simulate", "--set", "controller.refresh=none")
    for device in found(*asked)["devices"]:
        assert ("simulated" in device) == (device["kind"] == "memory")
        for pattern, gbps in device.get("simulated", {}).items():
            bound = device["bounds"][pattern]
            assert bound["binding"] and 0 < gbps <= 1.01 * bound["gbps"]


def test_devices_by_name_adds_remarks_and_simulates_nothing() -> None:
    shown = bankwise("list", "devices", "cloud-ai-100-ultra", "m2-ultra").stdout
    assert "Reads of one channel" not in shown
    assert "800.0 (+2.4 %)" in shown and "a scratchpad" in shown
    assert "plausible" in shown and "queues of 64" in shown and "mlu370-x4" not in shown
    assert bankwise("list", "devices", "m2-ulta").stderr == (
        "no shipped device 'm2-ulta'; did you mean 'm2-ultra'?\n"
    )


def test_patterns_as_ranges_over_the_plausible_variants() -> None:
    """As described they are what `bandwidth` delivers; what is set is no longer varied."""
    asked = ("memory", "mlu370-x4", "--pattern", "random_16KiB")
    ranges = found(*asked, "--plausible", "--json")
    (row,) = ranges["patterns"]
    assert row["gbps"]["as described"] == found(*asked, "--json")[0]["delivered_gbps"]
    assert row["most"] == {"variant": "8-bank mode", "gbps": max(row["gbps"].values())}
    assert row["least"]["gbps"] == min(row["gbps"].values())
    assert ranges["variants"]["queues of 64"]["set"]["controller.read_queue"] == 64
    done = bankwise(*asked, "--plausible", "--set", "memory=lpddr5-6400-x16-8b")
    assert "left out: 8-bank mode, --set memory=lpddr5-6400-x16-8b states it" in done.stdout

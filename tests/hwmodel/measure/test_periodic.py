"""Fast-forward of periodic streams gives the figures of simulating every burst."""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.measure.open_loop import OpenLoop
from hwmodel.measure.periodic import Forecast, Stream, run_periodic, sequential
from hwmodel.specs.device import load_device
from hwmodel.specs.memory_spec import MemorySpec

FIGURES = [
    "end", "hits", "misses", "conflicts", "bytes", "requests", "reads", "forwarded", "latency_sum",
    "latency", "latency_max", "commands", "bank_commands",
]  # fmt: skip


def memory(name: str, *settings: str) -> MemorySpec:
    return load_device(name, settings).memory


def active(run: OpenLoop) -> int:
    """Ticks with a bank open."""
    since = run.states["active_since"]
    return int(
        (run.states["active_ticks"] + np.where(since >= 0, run.states["now"] - since, 0)).sum()
    )


def both(spec: MemorySpec, stream: Stream, periods: int, patience: int = 100) -> tuple[
    OpenLoop, OpenLoop, Forecast
]:  # fmt: skip
    """(fast-forwarded, every burst simulated, how)."""
    fast, full = OpenLoop(spec), OpenLoop(spec)
    forecast = run_periodic(fast, stream, periods, patience)
    o = spec.organisation
    step = stream.rows * o.capacity_bytes // o.rows
    for number in range(periods):
        full.feed(0, (stream.address + number * step) % o.capacity_bytes, stream.kind)
    full.finish()
    return fast, full, forecast


@pytest.mark.parametrize("written", [0.0, 0.25])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("lpddr5-6400-x16", []),
        ("lpddr5-6400-x16", ["controller.page_policy=adaptive", "controller.page_timeout=60ns"]),
        ("lpddr5-6400-x16", ["controller.page_policy=closed"]),
        ("ramulator-lpddr5-6400-x16", []),
        ("hbm2e-3.2", []),
    ],
)
def test_without_refresh_the_figures_are_those_of_every_burst(
    name: str, settings: list[str], written: float
) -> None:
    spec = memory(name, "controller.refresh=none", *settings)
    fast, full, forecast = both(spec, sequential(spec, written), 41)
    assert forecast.cycle > 0 and forecast.bound == 0 and forecast.simulated < 30
    for figure in FIGURES:
        assert np.array_equal(fast.states[figure], full.states[figure]), figure
    assert active(fast) == active(full)


def test_refresh_that_falls_back_into_step_with_the_stream_is_fast_forwarded_exactly() -> None:
    """An interval of 500 ticks can stand in no more than 500 ways to the stream's period."""
    spec = memory("ramulator-lpddr5-6400-x16", "timing.tREFI=500nCK", "timing.tRFCab=40nCK")
    fast, full, forecast = both(spec, sequential(spec), 1500, 1000)
    assert 0 < forecast.cycle <= 500 and forecast.simulated < 1500 and forecast.bound == 0
    for figure in FIGURES:
        assert np.array_equal(fast.states[figure], full.states[figure]), figure
    assert active(fast) == active(full)


@pytest.mark.parametrize(
    "settings",
    [
        ["controller.refresh=all_bank"],
        ["controller.refresh=per_bank"],
        ["controller.refresh=per_bank", "controller.refresh_postpone=4"],
        [
            "controller.refresh=per_bank", "controller.refresh_postpone=8",
            "controller.refresh_order=idle_first",
        ],
    ],
)  # fmt: skip
@pytest.mark.parametrize("written", [0.0, 0.25])
def test_with_refresh_the_time_is_within_the_stated_bound(
    settings: list[str], written: float
) -> None:
    spec = memory("lpddr5-6400-x16", *settings)
    fast, full, forecast = both(spec, sequential(spec, written), 250, 100)
    assert forecast.simulated < 250 and forecast.bound < 0.02
    assert fast.end_tick == pytest.approx(full.end_tick, rel=max(forecast.bound, 1e-6))
    assert fast.total("requests") == full.total("requests")
    for command in ("REFPB", "REFAB"):
        assert fast.commands[command] == pytest.approx(full.commands[command], rel=0.005, abs=16)


def test_a_stream_that_goes_round_the_end_of_the_memory_repeats_too() -> None:
    spec = memory("ramulator-lpddr5-6400-x16", "controller.refresh=none")
    stream = sequential(spec)
    near_the_end = Stream(
        stream.address + (spec.organisation.rows - 2) * 32768, stream.kind, stream.rows
    )
    fast, full, forecast = both(spec, near_the_end, 12)
    assert forecast.cycle > 0 and fast.end_tick == full.end_tick


def test_few_periods_are_simulated_as_they_are() -> None:
    spec = memory("lpddr5-6400-x16")
    fast, full, forecast = both(spec, sequential(spec), 3)
    assert forecast.simulated == 3 and forecast.bound == 0 and fast.end_tick == full.end_tick


def test_a_period_that_moves_addresses_to_other_banks_is_refused() -> None:
    spec = memory("lpddr5-6400-x16")
    stream = sequential(spec)
    with pytest.raises(ValueError, match="whole bank hashes"):
        run_periodic(OpenLoop(spec), Stream(stream.address, stream.kind, 1), 10)
    rows_below = memory("lpddr5-6400-x16", "address_map=[row,bank:2,column:6,bankgroup:2]")
    with pytest.raises(ValueError, match="rows on top"):
        sequential(rows_below)

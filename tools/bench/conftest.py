"""Benchmarks print best and median of their rounds, absolute and per calibration unit.

A calibration unit is the time of a fixed integer loop (`UNIT_STEPS` dependent steps) on the same
core, so that bursts per unit compare between machines.
"""

from __future__ import annotations

import time
from typing import Any

import numba

UNIT_STEPS = 1_000_000
_ROUNDS = 15


@numba.njit
def _steps(count: int, state: int) -> int:
    """`count` dependent steps of a 31-bit linear congruential generator (Lehmer)."""
    for _ in range(count):
        state = (state * 48271) % 2147483647
    return state


def unit_seconds() -> float:
    """Seconds of one calibration unit: the best of several rounds."""
    _steps(1, 1)
    best = float("inf")
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        _steps(10 * UNIT_STEPS, 1)
        best = min(best, (time.perf_counter() - start) / 10)
    return best


def pytest_terminal_summary(terminalreporter: Any, config: Any) -> None:
    session = getattr(config, "_benchmarksession", None)
    benches = [b for b in getattr(session, "benchmarks", None) or [] if "bursts" in b.extra_info]
    if not benches:
        return
    unit = unit_seconds()
    terminalreporter.write_line(
        f"calibration unit: {1000 * unit:.3f} ms ({UNIT_STEPS:,} dependent integer steps)"
    )
    width = max(len(bench.name) for bench in benches)
    head = f"{'benchmark':<{width}} {'M bursts/s':>15} {'bursts/unit':>17} {'of peak':>8}"
    terminalreporter.write_line(head)
    terminalreporter.write_line(
        f"{'':<{width}} {'best':>7} {'median':>7} {'best':>8} {'median':>8}"
    )
    for bench in benches:
        bursts = bench.extra_info["bursts"]
        best, median = bursts / bench.stats.min, bursts / bench.stats.median
        terminalreporter.write_line(
            f"{bench.name:<{width}} {best / 1e6:7.2f} {median / 1e6:7.2f}"
            f" {best * unit:8,.0f} {median * unit:8,.0f} {bench.extra_info['utilization']:8.1%}"
        )

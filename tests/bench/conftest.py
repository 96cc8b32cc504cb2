"""Benchmarks print their rates, not only seconds."""

from __future__ import annotations

from typing import Any


def pytest_terminal_summary(terminalreporter: Any, config: Any) -> None:
    session = getattr(config, "_benchmarksession", None)
    for bench in getattr(session, "benchmarks", None) or []:
        if rate := bench.extra_info.get("bursts_per_s"):
            share = bench.extra_info["utilization"]
            terminalreporter.write_line(
                f"{bench.name}: {rate / 1e6:.2f} M bursts/s, {share:.1%} of peak"
            )

"""The refresh table on the terminal and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hwmodel.measure.refresh_cost import Choice, Cost
from hwmodel.specs.device import Device
from sweeps.render.screen import print_table
from sweeps.results.version import version


def record(device: Device, found: list[Cost]) -> dict[str, Any]:
    """The table as JSON."""
    rows = [asdict(cost) | asdict(cost.choice) for cost in found]
    for row in rows:
        del row["choice"]
    return {"device": device.name, "version": version(), "rows": rows}


def show(device: Device, found: list[Cost]) -> None:
    """A line a choice, a column a pattern; then what per-bank refresh gains or loses, and why."""
    patterns = list(dict.fromkeys(cost.pattern for cost in found))
    by = {(cost.choice, cost.pattern): cost for cost in found}
    print(f"{device.memory.name}, one channel, reads: share of the bandwidth without refresh\n")
    rows = []
    for choice in dict.fromkeys(cost.choice for cost in found):
        costs = [by[choice, pattern] for pattern in patterns]
        shares = [
            f"{cost.gbps:.2f} GB/s" if choice.refresh == "none" else f"{cost.relative:.1%}"
            for cost in costs
        ]
        order = choice.order.replace("_", " ") if choice.refresh == "per_bank" else ""
        postpone = "" if choice.refresh == "none" else str(choice.postpone)
        name = [choice.refresh.replace("_", " "), order, postpone]
        rows.append([*name, *shares, f"{costs[0].refreshing:.1%}"])
    print_table(["refresh", "order", "postpone", *patterns, "bank refreshing"], rows, "<<>")
    for line in _why(by, patterns):
        print(f"\n{line}")


def _why(by: dict[tuple[Choice, str], Cost], patterns: list[str]) -> list[str]:
    """Sentences: for each pattern, the best of each policy and what made the difference."""
    lines = []
    for pattern in patterns:
        best: dict[str, Cost] = {}
        for (choice, of), cost in by.items():
            kept = best.get(choice.refresh)
            if of == pattern and (kept is None or cost.gbps > kept.gbps):
                best[choice.refresh] = cost
        if not {"all_bank", "per_bank"} <= set(best):
            continue
        every, single = best["all_bank"], best["per_bank"]
        gain = single.gbps / every.gbps - 1
        verb = "wins" if gain > 0.001 else "loses" if gain < -0.001 else "makes no difference"
        lines.append(
            f"{pattern}: per-bank {verb} ({gain:+.1%}). All-bank stops the rank for"
            f" {every.refreshing:.1%} of the time and reopens"
            f" {every.conflicts_per_refresh:.1f} rows a refresh; per-bank keeps each bank busy"
            f" for {single.refreshing:.1%} and reopens"
            f" {single.conflicts_per_refresh:.1f}."
        )
    return lines

"""What each refresh policy costs one channel of a memory."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hwmodel.measure.refresh_cost import RefreshChoice, RefreshCost, refresh_table
from hwmodel.specs.device import load_device
from sweeps.ask.question import DeviceName, Question
from sweeps.run.version import version
from sweeps.sections.section import Grid, Say, Section


class RefreshFindings:
    """Costs of a device's memory, by choice and pattern."""

    def __init__(self, device: str, memory: str, costs: list[RefreshCost]) -> None:
        self.device, self.memory, self.costs = device, memory, costs

    def record(self) -> dict[str, Any]:
        """A row a choice and pattern."""
        rows = [asdict(cost) | asdict(cost.choice) for cost in self.costs]
        for row in rows:
            del row["choice"]
        return {"device": self.device, "version": version(), "rows": rows}


class RefreshQuestion(Question):
    """Compare all refresh policies on one channel of a device's memory."""

    device: DeviceName
    """A shipped accelerator or memory, or a YAML file."""

    def answer(self) -> RefreshFindings:
        device = load_device(self.device, list(self.set))
        return RefreshFindings(device.name, device.memory.name, refresh_table(device.memory))

    def section(self, findings: RefreshFindings) -> Section:
        """A line a choice, a column a pattern; then what per-bank refresh gains or loses, and
        why."""
        patterns = list(dict.fromkeys(cost.pattern for cost in findings.costs))
        by = {(cost.choice, cost.pattern): cost for cost in findings.costs}
        title = f"{findings.memory}, one channel, reads: share of the bandwidth without refresh"
        rows = []
        for choice in dict.fromkeys(cost.choice for cost in findings.costs):
            costs = [by[choice, pattern] for pattern in patterns]
            shares = [
                f"{cost.gbps:.2f} GB/s" if choice.refresh == "none" else f"{cost.relative:.1%}"
                for cost in costs
            ]
            order = choice.order.replace("_", " ") if choice.refresh == "per_bank" else ""
            postpone = "" if choice.refresh == "none" else str(choice.postpone)
            name = [choice.refresh.replace("_", " "), order, postpone]
            rows.append([*name, *shares, f"{costs[0].refreshing:.1%}"])
        grid = Grid("", ["refresh", "order", "postpone", *patterns, "bank refreshing"], rows)
        return Section(title, [Say(title), grid, *map(Say, _why(by, patterns))])


def _why(by: dict[tuple[RefreshChoice, str], RefreshCost], patterns: list[str]) -> list[str]:
    """Sentences: for each pattern, the best of each policy and what made the difference."""
    lines = []
    for pattern in patterns:
        best: dict[str, RefreshCost] = {}
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

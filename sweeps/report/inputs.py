"""What a run was asked and of what, as a section: what differs between its points stands out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from policies.allocators.registry import POLICIES
from sweeps.analyse.table import Table
from sweeps.sections.section import Block, Grid, Listing, Section

_TITLES = {
    "devices": "Devices", "models": "Models", "formats": "Number formats", "workloads": "Workloads",
}  # fmt: skip
_LONG = 80


def configuration(table: Table, rows: Sequence[list[str]], what: str) -> Section:
    """Axes and controls (`rows`: input, values; what differs between `what`), the base, and
    descriptions as resolved, side by side."""
    marked = frozenset(range(len(rows)))
    blocks: list[Block] = []
    if rows:
        blocks.append(Grid(f"What differs between the {what}", ["input", "values"], [*rows],
                           marked=marked, text=True))  # fmt: skip
    same = [[path, value] for path, value in flattened(table.config["base"]).items()]
    if same:
        grid = Grid("", ["input", "value"], same, text=True)
        blocks.append(Section(f"What is the same in all {what}", [grid], folded=True))
    resolved = table.config.get("resolved")
    for kind, title in _TITLES.items():
        items = resolved.get(kind) if isinstance(resolved, dict) else None
        if isinstance(items, dict) and items:
            blocks.append(Section(f"{title} as resolved", [_beside(items)], folded=True))
    if readings := _readings(table.config):
        blocks.append(Listing("How each policy is read", readings))
    return Section("What was run", blocks)


def _readings(config: dict[str, Any]) -> dict[str, str]:
    """The defended reading of each policy that the run names."""
    named: set[str] = set()

    def walk(value: Any, policy: bool) -> None:
        if isinstance(value, dict):
            if policy and isinstance(value.get("name"), str):
                named.add(value["name"])
            for key, inner in value.items():
                walk(inner, str(key).split(".")[-1] in ("policy", "rivals") or policy)
        elif isinstance(value, list):
            for inner in value:
                walk(inner, policy)
        elif policy and isinstance(value, str):
            named.add(value)

    for part in ("base", "axes"):
        walk(config.get(part), False)
    return {name: kind.reading for name, kind in POLICIES.items() if name in named and kind.reading}


def _beside(items: dict[str, Any]) -> Grid:
    """Descriptions side by side, rows that differ marked."""
    flat = {name: flattened(item) for name, item in items.items()}
    paths = dict.fromkeys(path for values in flat.values() for path in values)
    rows = [[path, *(values.get(path, "–") for values in flat.values())] for path in paths]
    marked = frozenset(i for i, row in enumerate(rows) if len(set(row[1:])) > 1)
    return Grid("", ["input", *flat], rows, marked=marked, text=True)


def flattened(value: Any, prefix: str = "") -> dict[str, str]:
    """Nested data as text by dotted path; lists on one line."""
    if isinstance(value, dict) and value:
        found: dict[str, str] = {}
        for key, inner in value.items():
            found |= flattened(inner, f"{prefix}.{key}" if prefix else str(key))
        return found
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return {prefix: text if len(text) <= _LONG else f"{text[: _LONG - 3]}..."}


def origin(table: Table) -> Iterator[Section]:
    """Assumed numbers, and where the results come from."""
    count = sum(len(items) for items in table.assumed.values())
    listings: list[Block] = [
        Listing(name, {key: str(value) for key, value in items.items()})
        for name, items in table.assumed.items()
    ]
    yield Section(f"Assumed numbers: {count}", listings)
    yield Section("Where this comes from", [Listing("", table.origin())])

"""What a run was asked and of what, as a section: what differs between its points stands out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sweeps.experiments.sweep import label
from sweeps.render.section import Block, Grid, Listing, Section
from sweeps.reports.table import Table

_KINDS = {"devices": "Devices", "models": "Models", "workloads": "Workloads"}
_LONG = 80


def configuration(table: Table) -> Section:
    """Axes and controls, the base, and descriptions as resolved, side by side."""
    config = table.config
    rows = [[path, "; ".join(map(label, values))] for path, values in config["axes"].items()]
    if table.trials is not None:
        rows = [[path, _words(space)] for path, space in table.trials.space.items()]
        rows += [[f"reference {name}", _words(changed)] for name, changed in
                 (config.get("references") or {}).items()]  # fmt: skip
    for kind in ("control", "change"):
        for name, changed in (config.get(f"{kind}s") or {}).items():
            told = "; ".join(f"{path}: {label(value)}" for path, value in changed.items())
            rows.append([f"{kind} {name}", told])
    for name, parts in (config.get("together") or {}).items():
        rows.append([f"together {name}", ", ".join(parts)])
    for name, parameter in (config.get("break_even") or {}).items():
        rows.append([f"break-even {name}", _words(parameter)])
    marked = frozenset(range(len(rows)))
    what = "points" if table.trials is None else "trials"
    blocks: list[Block] = []
    if rows:
        blocks.append(Grid(f"What differs between the {what}", ["input", "values"], rows,
                           marked=marked, text=True))  # fmt: skip
    same = [[path, value] for path, value in flattened(config["base"]).items()]
    if same:
        grid = Grid("", ["input", "value"], same, text=True)
        blocks.append(Section(f"What is the same in all {what}", [grid], folded=True))
    resolved = config.get("resolved")
    for kind, title in _KINDS.items():
        items = resolved.get(kind) if isinstance(resolved, dict) else None
        if isinstance(items, dict) and items:
            blocks.append(Section(f"{title} as resolved", [_beside(items)], folded=True))
    return Section("What was run", blocks)


def _words(value: Any) -> str:
    """A part of a study's description on one line."""
    if isinstance(value, dict):
        return "; ".join(f"{key}: {label(item)}" for key, item in value.items())
    return label(value)


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


def origin(table: Table) -> Iterator[Block]:
    """Assumed numbers, and where the results come from."""
    count = sum(len(items) for items in table.assumed.values())
    listings: list[Block] = [
        Listing(name, {key: str(value) for key, value in items.items()})
        for name, items in table.assumed.items()
    ]
    yield Section(f"Assumed numbers: {count}", listings)
    yield Section("Where this comes from", [Listing("", table.origin())])

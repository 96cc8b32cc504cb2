"""What a run says after its first replication, long before it ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sweeps.analyse.rows import Record
from sweeps.analyse.table import grouped
from sweeps.plan.measures import objective_of

MOST = 8
"""Groups that are shown, of those there are."""


def preview(records: list[Record], config: dict[str, Any]) -> Iterator[str]:
    """A line a group: what each competitor has of the objective in the first replication, the best
    first. Nothing where competitors are compared by no one metric."""
    if (objective := objective_of(config)) is None:
        return
    first = [record for record in records if record["replication"] == 1]
    groups = grouped(first, config, objective)
    for group in groups[:MOST]:
        known = {row.name: row.mean(objective.metric) for row in group.main()}
        values = {name: value for name, value in known.items() if value is not None}
        ranked = sorted(values, key=lambda name: values[name], reverse=not objective.less)
        told = [f"{name} {objective.scale * values[name]:,.{objective.digits}f}" for name in ranked]
        if told:
            yield f"one replication of {group.title}: {', '.join(told)} {objective.words.lower()}"
    if len(groups) > MOST:
        yield f"and {len(groups) - MOST} more"

"""A run of what-ifs: the base, each change of it alone, and some together."""

from __future__ import annotations

from typing import Any

from sweeps.experiments.variant import AS_DESCRIBED
from sweeps.experiments.what_if import CHANGE, WhatIfSpec
from sweeps.render.section import Block, Grid, Section
from sweeps.reports.group_sections import group_sections
from sweeps.reports.kind import Kind
from sweeps.reports.table import Table
from sweeps.reports.what_if_verdict import what_if_blocks, what_if_grids, what_if_sentences
from sweeps.results.store import Record


class WhatIf(Kind):
    """What each change does to each competitor, and to the answer."""

    spec = WhatIfSpec

    def total(self, config: dict[str, Any], records: list[Record]) -> int:
        variants = 1 + len(config["changes"]) + len(config.get("together") or {})
        return variants * super().total(config, records)

    def sentences(self, table: Table) -> list[str]:
        return what_if_sentences(table)

    def results(self, table: Table) -> list[Block]:
        base = [group for group in table.groups if group.others.get(CHANGE) == AS_DESCRIBED]
        blocks = [*what_if_blocks(table), *group_sections(table, base)]
        changed = [g for g in table.groups if g not in base and CHANGE in g.others]
        if changed:
            inner = group_sections(table, changed, folded=True)
            blocks.append(Section("Each change", inner, folded=True))
        return blocks

    def grids(self, table: Table) -> list[Grid]:
        return what_if_grids(table)

    def inputs(self, table: Table) -> list[list[str]]:
        changes = self.named(table, "change", "changes")
        together = table.config.get("together") or {}
        rows = [[f"together {name}", ", ".join(parts)] for name, parts in together.items()]
        return [*super().inputs(table), *changes, *rows]

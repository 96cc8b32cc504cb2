"""A run that searches break-evens: the values of assumed numbers at which the answer changes."""

from __future__ import annotations

from typing import Any

from sweeps.experiments.break_even import (
    PARAMETER,
    BreakEvenSpec,
    evaluations,
    parameters,
    places,
    total,
)
from sweeps.experiments.variant import AS_DESCRIBED
from sweeps.render.section import Block, Grid
from sweeps.reports.break_even_verdict import (
    break_even_blocks,
    break_even_grids,
    break_even_sentences,
)
from sweeps.reports.group_sections import group_sections
from sweeps.reports.kind import Kind
from sweeps.reports.table import Table
from sweeps.results.store import Record


class BreakEven(Kind):
    """Where each number turns the answer, or that it does not in its plausible range."""

    spec = BreakEvenSpec

    def total(self, config: dict[str, Any], records: list[Record]) -> int:
        known = evaluations(config, records)
        where = places(config["axes"], config["compare"])
        return total(parameters(config), known, where, int(config["base"].get("replications", 1)))

    def sentences(self, table: Table) -> list[str]:
        return break_even_sentences(table)

    def results(self, table: Table) -> list[Block]:
        base = [group for group in table.groups if group.others.get(PARAMETER) == AS_DESCRIBED]
        return [*break_even_blocks(table), *group_sections(table, base)]

    def grids(self, table: Table) -> list[Grid]:
        return break_even_grids(table)

    def inputs(self, table: Table) -> list[list[str]]:
        return [*super().inputs(table), *self.named(table, "break-even", "break_even")]

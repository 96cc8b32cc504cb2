"""What a kind of run is: what its YAML may say, what its points are, and what its report says.

The defaults are those of a sweep that serves; a kind overrides what differs. `sweeps.plan.kinds`
lists them.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

from sweeps.analyse.label import label
from sweeps.analyse.rows import Record
from sweeps.analyse.table import Table, grouped
from sweeps.plan.experiment import Described, ExperimentSpec
from sweeps.plan.sweep import RunSpec, SweepSpec
from sweeps.report import cases, explanation
from sweeps.report.conclusion import sweep_sentences
from sweeps.report.group_sections import along, group_sections, lacking, maps
from sweeps.report.section import Block, Grid
from sweeps.run.reading import SWEEP, RunParts, Shape
from sweeps.run.store import RunDirectory


class Kind:
    """A kind of run. How its points come about, `spec` says; how one is measured, `experiment`."""

    spec: ClassVar[type[RunSpec]] = SweepSpec
    """What its YAML may say."""
    experiment: ClassVar[type[Described]] = ExperimentSpec
    """What a point is, for a kind that is named by what it measures."""
    shape: ClassVar[Shape] = SWEEP
    points: ClassVar[str] = "points"
    """What differs within such a run, in a word."""

    def table(self, run: RunParts, directory: RunDirectory) -> Table:
        """A run directory as groups of competitors."""
        return grouped(run, directory, self.total(run.config, run.records))

    def total(self, config: dict[str, Any], records: list[Record]) -> int:
        """Results that a finished run has; where it searches, as far as is known."""
        replications = int(config["base"].get("replications", 1))
        points = prod(len(values) for values in config["axes"].values())
        points *= len(config.get("cases") or {}) or 1
        main = points * (1 + len(config.get("controls") or {}))
        groups = points // max(len(config["axes"].get(config["compare"], ())), 1)
        return replications * (main + groups * len(config.get("references") or {}))

    def sentences(self, table: Table) -> list[str]:
        """What the run found."""
        return sweep_sentences(table)

    def sections(self, table: Table) -> list[Block]:
        """The tables and charts behind the sentences."""
        return [*explanation.sections(table.path), *along(table), *self.results(table),
                *maps(table)]  # fmt: skip

    def results(self, table: Table) -> list[Block]:
        """Those of the points; many cases are compared first."""
        found: list[Block] = [cases.section(table)] if table.config.get("cases") else []
        return [*found, *group_sections(table, table.groups, bool(found))]

    def grids(self, table: Table) -> list[Grid]:
        """The terminal's tables, of a run that has others than its groups'."""
        blocks = cases.section(table).blocks if table.config.get("cases") else []
        return [block for block in blocks if isinstance(block, Grid)]

    def inputs(self, table: Table) -> list[list[str]]:
        """What differs within the run: (input, values)."""
        axes = [[path, "; ".join(map(label, v))] for path, v in table.config["axes"].items()]
        named = [*self.named(table, "case", "cases"), *self.named(table, "control", "controls")]
        return [*axes, *named, *self.named(table, "reference", "references")]

    def lacking(self, table: Table) -> list[str]:
        """What results of older versions cannot show, a sentence each."""
        return list(lacking(table))

    def named(self, table: Table, word: str, key: str) -> list[list[str]]:
        """Rows of `inputs` for what the config names under a key."""
        given = (table.config.get(key) or {}).items()
        return [[f"{word} {name}", in_words(value)] for name, value in given]


def in_words(value: Any) -> str:
    """A part of a description on one line."""
    if isinstance(value, dict):
        return "; ".join(f"{key}: {label(item)}" for key, item in value.items())
    return label(value)

"""How a kind of run is shown: findings into sentences, tables and charts.

The defaults are those of a sweep that serves; a presenter overrides what differs.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sweeps.analyse.cases import outcomes
from sweeps.analyse.conclusion import dependences, turned
from sweeps.analyse.gap import references
from sweeps.analyse.label import label
from sweeps.analyse.table import Table
from sweeps.analyse.variants import overrides, with_role
from sweeps.analyse.verdict import judge_all
from sweeps.plan.layout import DESCRIBED
from sweeps.plan.variant import ROLES
from sweeps.report import case_sections, explanation_page, sentences
from sweeps.report.group_sections import along, group_sections, lacking, maps
from sweeps.report.section import Block, Grid
from sweeps.run.reading import SWEEP, RunParts, Shape, sweep_table
from sweeps.run.store import RunDirectory

_ASKED = (*DESCRIBED, "load", "slo", "requests")
"""Along axes that begin so another winner is a finding. Any other is an assumption: there another
winner leaves the answer undecided."""
_MANY = 12
"""Sentences on single combinations above which they are counted instead, axis by axis."""
FEW = 6
"""Groups that have a sentence each at most."""


class Presenter:
    """How a run is shown."""

    shape: ClassVar[Shape] = SWEEP
    points: ClassVar[str] = "points"
    """What differs within such a run, in a word."""

    def table(self, run: RunParts, directory: RunDirectory) -> Table:
        """A run directory as groups of competitors."""
        return sweep_table(run, directory)

    def sentences(self, table: Table) -> list[str]:
        """What the run found: along its axes, then in each group where these are few."""
        if with_role(table.config, "case"):
            found = outcomes(table)
            turning = sum(bool(each.hangs_on) for each in found)
            return [sentences.outcomes([each.verdict for each in found], "case", turning)]
        verdicts = judge_all(table.groups)
        every = dependences(table, verdicts, _ASKED)
        told = [text for each in every for text in sentences.dependence(each)]
        if len(told) > _MANY:
            counted = [sentences.outcomes(verdicts, "combination")]
            axes = dict.fromkeys(each.axis for each in every)
            along_ = ([each for each in every if each.axis == axis] for axis in axes)
            told = [*counted, *map(sentences.dependences, along_)]
        told += [sentences.turned(each) for each in turned(table, verdicts)]
        if not told and len(verdicts) > 1:
            told = [sentences.outcomes(verdicts, "combination")]
        if len(verdicts) <= FEW:
            told += [sentences.verdict(each, table.compared) for each in verdicts]
            for group, each in zip(table.groups, verdicts, strict=True):
                held = [r for r in references(group) if each.leader in r.gains]
                told += [sentences.reference(r, each.leader) for r in held]
        return told

    def sections(self, table: Table) -> list[Block]:
        """The tables and charts behind the sentences."""
        return [*explanation_page.sections(table.path), *along(table), *self.results(table),
                *maps(table)]  # fmt: skip

    def results(self, table: Table) -> list[Block]:
        """Those of the points; many cases are compared first."""
        blocks: list[Block] = (
            [case_sections.section(table)] if with_role(table.config, "case") else []
        )
        return [*blocks, *group_sections(table, table.groups, bool(blocks))]

    def grids(self, table: Table) -> list[Grid]:
        """The terminal's tables, of a run that has others than its groups'."""
        blocks = case_sections.section(table).blocks if with_role(table.config, "case") else []
        return [block for block in blocks if isinstance(block, Grid)]

    def inputs(self, table: Table) -> list[list[str]]:
        """What differs within the run: (input, values)."""
        axes = [[path, "; ".join(map(label, v))] for path, v in table.config["axes"].items()]
        return [*axes, *(row for role in ROLES for row in variant_rows(table.config, role))]

    def lacking(self, table: Table) -> list[str]:
        """What results of older versions cannot show, a sentence each."""
        return list(lacking(table))


def variant_rows(config: dict[str, Any], role: str) -> list[list[str]]:
    """Rows of `Presenter.inputs` for the variants of one role."""
    return [
        [f"{role} {name}", _in_short(variant)] for name, variant in with_role(config, role).items()
    ]


def _in_short(variant: dict[str, Any]) -> str:
    if parts := variant.get("parts"):
        return ", ".join(parts)
    of = variant.get("of")
    text = in_words(overrides(variant)) + (f" ({of})" if isinstance(of, str) else "")
    return f"{variant['why']} ({text})" if variant.get("why") else text


def in_words(value: Any) -> str:
    """A part of a description on one line."""
    if isinstance(value, dict):
        return "; ".join(f"{key}: {label(item)}" for key, item in value.items())
    return label(value)

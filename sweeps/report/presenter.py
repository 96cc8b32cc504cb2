"""How a kind of run is shown: findings into sentences, tables and charts.

The defaults are those of a sweep that serves; a presenter overrides what differs.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sweeps.analyse.label import label
from sweeps.analyse.table import Table
from sweeps.analyse.variants import overrides, with_role
from sweeps.plan.variant import ROLES
from sweeps.report import case_sections, explanation_page, next_page
from sweeps.report import verdict_sentences as sentences
from sweeps.report.group_sections import along, group_sections, lacking, maps
from sweeps.run.findings import Findings, find
from sweeps.run.reading import RunParts, sweep_table
from sweeps.run.store import RunDirectory
from sweeps.sections.section import Block, Grid

_MANY = 12
"""Sentences on single combinations above which they are counted instead, axis by axis."""
FEW = 6
"""Groups that have a sentence each at most."""


class Presenter:
    """How a run is shown."""

    points: ClassVar[str] = "points"
    """What differs within such a run, in a word."""

    def find(self, run: RunParts, directory: RunDirectory) -> Findings[Any]:
        """What a run found, from what is in its directory."""
        return find(sweep_table(run, directory))

    def sentences(self, found: Findings[Any]) -> list[str]:
        """What the run found: along its axes, then in each group where these are few."""
        verdicts, own = found.verdicts, found.own
        if own.cases:
            turning = sum(bool(each.hangs_on) for each in own.cases)
            return [sentences.outcomes([each.verdict for each in own.cases], "case", turning)]
        told = [text for each in own.dependences for text in sentences.dependence(each)]
        if len(told) > _MANY:
            counted = [sentences.outcomes(verdicts, "combination")]
            axes = dict.fromkeys(each.axis for each in own.dependences)
            along_ = ([d for d in own.dependences if d.axis == axis] for axis in axes)
            told = [*counted, *map(sentences.dependences, along_)]
        told += [sentences.turned(each) for each in own.turned]
        if not told and len(verdicts) > 1:
            told = [sentences.outcomes(verdicts, "combination")]
        if len(verdicts) <= FEW:
            told += [sentences.verdict(each, found.table.compared) for each in verdicts]
            for each, references in zip(verdicts, found.references, strict=True):
                held = [r for r in references if each.leader in r.gains]
                told += [sentences.reference(r, each.leader) for r in held]
        return told

    def grids(self, found: Findings[Any]) -> list[Grid]:
        """The tables that answer, of a run that has others than its groups'."""
        return [case_sections.grid(found)] if found.own.cases else []

    def results(self, found: Findings[Any], grids: list[Grid]) -> list[Block]:
        """The sections behind the sentences, with the `grids` of this run among them."""
        blocks: list[Block] = [case_sections.section(found, grids[0])] if grids else []
        return [*blocks, *group_sections(found, found.table.groups, bool(blocks))]

    def sections(self, found: Findings[Any], grids: list[Grid]) -> list[Block]:
        """All tables and charts."""
        table = found.table
        why = explanation_page.sections(found.explanations)
        return [*next_page.sections(found.asked), *why, *along(table),
                *self.results(found, grids), *maps(table)]  # fmt: skip

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

"""A sweep under the rule of the best: who leads, on what that depends, and the tables behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sweeps.analyse.conclusion import Conclusion
from sweeps.analyse.label import label
from sweeps.analyse.table import Table
from sweeps.plan.variant import ROLES
from sweeps.report import case_sections, explanation_page, next_page
from sweeps.report import verdict_sentences as sentences
from sweeps.report.account import Account, variant_rows
from sweeps.report.group_sections import along, group_sections, lacking, maps
from sweeps.run.findings import Findings
from sweeps.sections.section import Block, Grid

_MANY = 12
"""Sentences on single combinations above which they are counted instead, axis by axis."""
FEW = 6
"""Groups that have a sentence each at most."""


def account(findings: Findings[Conclusion]) -> Account:
    """Verdicts along the axes or by case, then each group's tables and charts."""
    grids = [case_sections.grid(findings)] if findings.own.cases else []
    results: list[Block] = [case_sections.section(findings, grids[0])] if grids else []
    results += group_sections(findings, findings.table.groups, bool(results))
    return accounted(findings, _sentences(findings), results, grids)


def accounted(
    findings: Findings[Any], said: Sequence[str], results: Sequence[Block], grids: Sequence[Grid]
) -> Account:
    """The account of a sweep with such sentences and results."""
    table = findings.table
    why = explanation_page.sections(findings.explanations)
    sections = [
        *next_page.sections(findings.next_answers),
        *why,
        *along(table),
        *results,
        *maps(table),
    ]
    return Account(said, sections, grids, inputs(table), list(lacking(table)))


def _sentences(found: Findings[Conclusion]) -> list[str]:
    """What the run found: along its axes, then in each group where these are few."""
    verdicts, own = found.verdicts, found.own
    if own.cases:
        turning = sum(bool(each.hangs_on) for each in own.cases)
        return [sentences.outcomes([each.verdict for each in own.cases], "case", turning)]
    said = [text for each in own.dependences for text in sentences.dependence(each)]
    if len(said) > _MANY:
        counted = [sentences.outcomes(verdicts, "combination")]
        axes = dict.fromkeys(each.axis for each in own.dependences)
        along_ = ([d for d in own.dependences if d.axis == axis] for axis in axes)
        said = [*counted, *map(sentences.dependences, along_)]
    said += [sentences.turned(each) for each in own.turned]
    if not said and len(verdicts) > 1:
        said = [sentences.outcomes(verdicts, "combination")]
    if len(verdicts) <= FEW:
        said += [sentences.verdict(each, found.table.compared) for each in verdicts]
        for each, references in zip(verdicts, found.references, strict=True):
            beside = [r for r in references if each.leader in r.gains]
            said += [sentences.reference(r, each.leader) for r in beside]
    return said


def inputs(table: Table) -> list[list[str]]:
    """What differs within a sweep: (input, values)."""
    axes = [[path, "; ".join(map(label, v))] for path, v in table.config["axes"].items()]
    return [*axes, *(row for role in ROLES for row in variant_rows(table.config, role))]

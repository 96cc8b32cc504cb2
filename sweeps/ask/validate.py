"""The models' figures beside measured ones: shipped measurements and servers, or files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from policies.memory.measured_cells import ComparedCell, Skipped
from sweeps.ask import validation
from sweeps.ask.question import Question, Several, Text, Typed
from sweeps.run.progress import Progress
from sweeps.sections.section import Section


@dataclass(frozen=True)
class ComparedSource:
    """Cells of one description; `others`: the same under each candidate; `why` they are skipped."""

    spec: validation.Spec
    cells: list[ComparedCell] | None
    why: str = ""
    others: dict[str, list[ComparedCell]] | None = None


@dataclass(frozen=True)
class Validations:
    """What each description that was asked about came to."""

    each: list[ComparedSource]

    @property
    def cells(self) -> list[ComparedCell]:
        return [cell for one in self.each for cell in one.cells or ()]

    def record(self) -> list[dict[str, Any]]:
        """A record a description."""
        return [
            {"name": one.spec.name, "skipped": one.why, "cells": []} if one.cells is None
            else validation.record(one.spec, one.cells, one.others)
            for one in self.each
        ]  # fmt: skip


class ValidateQuestion(Question):
    """Compare the models with public measurements.

    Each cell is within tolerance, or refuted. A measured server whose log is not here is skipped;
    BANKWISE_DATA names the folder of logs.

    Exit code 0: done, also where a cell is refuted; 1: a cell marked `agrees` is refuted; 2:
    invalid input.
    """

    former: ClassVar[Mapping[str, str]] = {
        "--schedules": "a verb: `bankwise validate schedules FILE...`",
    }
    needs: ClassVar[Mapping[str, str]] = {"device": "files"}

    files: Annotated[
        tuple[Text, ...], Several, Typed("FILE", ("measurements", "servers"), argument=True)
    ] = ()
    """Shipped measurements or servers, or YAML files (default: all that ship)."""
    candidates: bool = False
    """Adds the figure of each cell under every candidate."""
    device: Annotated[Text, Typed("DEVICE", ("accelerators", "memories"))] | None = None
    """Device that measurements are compared with (default: their own)."""

    def answer(self) -> Validations:
        sources = [validation.loaded(n, self.device) for n in self.files or validation.sources()]
        through = Progress().through("measurements")
        return Validations([self._one(source) for source in through(sources, len(sources))])

    def _one(self, source: validation.Source) -> ComparedSource:
        spec = validation.spec_of(source)
        names = validation.alternatives(spec) if self.candidates else {}
        try:
            cells = validation.compared(source, overrides=list(self.set))
            others = {name: validation.compared(source, name, list(self.set)) for name in names}
        except Skipped as error:
            return ComparedSource(spec, None, str(error))
        return ComparedSource(spec, cells, others=others if self.candidates else None)

    def failed(self, findings: Validations) -> bool:
        return any(cell.lost for cell in findings.cells)

    def section(self, findings: Validations) -> Section:
        parts = [(one.spec, one.cells, one.why) for one in findings.each]
        found = validation.sheet(findings.cells, parts)
        tables = [
            validation.under_others(one.spec.name, one.cells, one.others)
            for one in findings.each
            if one.cells and one.others
        ]
        return Section(found.title, [*found.blocks[:-1], *tables, found.blocks[-1]])

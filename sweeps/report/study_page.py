"""A study as a run: its trials, and its finale as a group of competitors."""

from __future__ import annotations

from sweeps.analyse.table import Table
from sweeps.report import study_sentences as sentences
from sweeps.report.presenter import Presenter, in_words, variant_rows
from sweeps.report.study_sections import settings_rows, study_blocks
from sweeps.run.findings import Findings
from sweeps.run.reading import RunParts
from sweeps.run.store import RunDirectory
from sweeps.sections.section import Block, Grid
from sweeps.study.family_findings import alone_signs
from sweeps.study.first import LEVELS
from sweeps.study.fleet_size import CARDS
from sweeps.study.study_findings import StudyFindings, find_study

POOL = "serving.policy.pool_share"


class StudyPage(Presenter):
    """What the best of a space gains, and how it was found."""

    points = "trials"

    def find(self, run: RunParts, directory: RunDirectory) -> Findings[StudyFindings]:
        return find_study(run, directory)

    def sentences(self, found: Findings[StudyFindings]) -> list[str]:
        """What was gained, against whom, how sure that is, how much of the gap it closes; and the
        settings that did it."""
        own = found.own
        if own.best is None:
            return [sentences.no_trial(len(own.trials.records), own.failed)]
        rows = [
            row
            for row in settings_rows(own)
            if row[1] != row[2] and row[0] != CARDS and not (own.trials.limit and row[0] == LEVELS)
        ]
        told = [sentences.settings(f"Trial {own.trial}", rows)]
        if own.trials.limit and "chosen" in own.trials.limit:
            told.insert(0, sentences.buckets(own.trials.limit))
        pools = [each.value for each in own.settings if each.path == POOL]
        told[:0] = [sentences.pool(value) for value in pools if isinstance(value, float | int)]
        if len(own.trials.objectives) > 1:
            told.append(sentences.objectives(own.by_objective))
        if own.constrained and own.cheapest is None:
            told.append(sentences.constrained(own.constrained))
        trial, value = own.best
        if own.gain is None:
            return [sentences.best_so_far(trial, own.trials.says(value)), *told]
        if own.cheapest is not None:  # settings are told of the trial, not of another rival
            cheapest = sentences.cheapest(own.cheapest)
            return cheapest if own.rival is not None else [*cheapest, *told]
        winner = own.trials.winner() or {}
        by = sentences.proposed(own.phase, winner.get("first"), own.trial, len(own.trials.records))
        told += sentences.families(own.families)
        told += sentences.alone(own.alone, alone_signs(own.alone))
        return [*sentences.study(own.gain, by), *told, sentences.states(own.states)]

    def grids(self, found: Findings[StudyFindings]) -> list[Grid]:
        return []

    def sections(self, found: Findings[StudyFindings], grids: list[Grid]) -> list[Block]:
        return study_blocks(found)

    def inputs(self, table: Table) -> list[list[str]]:
        space = [[path, in_words(each)] for path, each in table.config["space"].items()]
        return [*space, *variant_rows(table.config, "reference")]

    def lacking(self, table: Table) -> list[str]:
        return []

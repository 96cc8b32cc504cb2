"""A study as a run: its trials, and its finale as a group of competitors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sweeps.analyse.rows import Record, at
from sweeps.analyse.statistics import interval
from sweeps.analyse.table import Table
from sweeps.report import study_sentences as sentences
from sweeps.report.presenter import Presenter, in_words, variant_rows
from sweeps.report.section import Block
from sweeps.report.study_sections import settings_rows, study_blocks
from sweeps.run.reading import RunParts, Shape
from sweeps.run.store import RunDirectory
from sweeps.study.fleet_size import ATTAINED, CARDS
from sweeps.study.trials import Trials, finale_groups, read_trials, study_gain


@dataclass(kw_only=True)
class StudyTable(Table):
    """A study's finale as a table of one group, its trials beside it."""

    trials: Trials


def guessed(records: list[Record], name: str) -> dict[str, Any]:
    """A config that the trials agree with."""
    values: dict[str, float] = next(
        (r["values"] for r in records if isinstance(r.get("values"), dict)), {}
    )
    names = dict.fromkeys(name for record in records for name in record["params"])
    return {
        "kind": "study", "name": name, "summary": "(its config is missing)", "base": {},
        "space": {path: {} for path in names}, "trials": len(records),
        "objectives": [{"metric": metric} for metric in values],
    }  # fmt: skip


class StudyPage(Presenter):
    """What the best of a space gains, and how it was found."""

    shape = Shape(
        {"space": dict, "base": dict, "name": str},
        {"trial": int, "overrides": dict, "params": dict},
        guessed,
    )
    points = "trials"

    def table(self, run: RunParts, directory: RunDirectory) -> Table:
        trials = read_trials(directory, run)
        groups = finale_groups(trials)
        names = [row.name for group in groups for row in group.rows]
        config = {**run.config, "axes": {"contender": names}, "compare": "contender"}
        return StudyTable(
            config["name"], config.get("question") or "", groups, len(run.records),
            self.total(run.config, run.records), config, run.provenance, directory.path,
            run.problems, self.points, trials=trials,
        )  # fmt: skip

    def total(self, config: dict[str, Any], records: list[Record]) -> int:
        asked = config.get("trials")
        return asked if isinstance(asked, int) else len(records)

    def sentences(self, table: Table) -> list[str]:
        return _sentences(table, _trials(table))

    def sections(self, table: Table) -> list[Block]:
        return study_blocks(table, _trials(table))

    def inputs(self, table: Table) -> list[list[str]]:
        space = [[path, in_words(each)] for path, each in _trials(table).space.items()]
        return [*space, *variant_rows(table.config, "reference")]

    def lacking(self, table: Table) -> list[str]:
        return []


def _trials(table: Table) -> Trials:
    assert isinstance(table, StudyTable)
    return table.trials


def _sentences(table: Table, trials: Trials) -> list[str]:
    """What was gained, against whom, how sure that is, how much of the gap it closes; and the
    settings that did it."""
    best = trials.best()
    if best is None:
        failed = sum(trials.values(record) is None for record in trials.records)
        return [sentences.no_trial(len(trials.records), failed)]
    winner = trials.winner() or best
    rows = [row for row in settings_rows(table, winner) if row[1] != row[2] and row[0] != CARDS]
    found = [sentences.settings(f"Trial {winner['trial']}", rows)]
    if len(trials.objectives) > 1:
        found.append(sentences.objectives(trials.by_objective()))
    if not trials.contenders:
        return [sentences.best_so_far(best["trial"], trials.first(best), trials.words), *found]
    if fleet := table.config.get("fleet"):
        told = _cheapest(table, trials, winner, fleet["cost"])
        return told if " as " in trials.chosen else [*told, *found]
    return [*sentences.study(study_gain(trials)), *found]


def _cheapest(table: Table, trials: Trials, winner: Record, cost: str) -> list[str]:
    """The cheapest fleet, how it keeps the constraints, and how much dearer others are."""
    best, kept = trials.contenders[0], []
    for each in table.config["constraints"]:
        most = 1.0 if each["metric"] == ATTAINED else math.inf
        among = interval(best.values(each["metric"], list(best.replications))).within(0.0, most)
        kept.append((each["metric"], among))
    sizes = {row.name: (row.mean("cards"), row.mean("cost")) for row in trials.contenders}
    device = winner["overrides"].get("device", at(table.config["base"], "device"))
    who = f"{winner['rival']} ({trials.chosen}) on {device}"
    if " as " in trials.chosen:
        who = f"{trials.chosen} on {device}"
    unit = {"cards": "cards", "watts": "W"}.get(cost, "in all")
    return sentences.cheapest(who, unit, sizes, kept, len(best.replications))

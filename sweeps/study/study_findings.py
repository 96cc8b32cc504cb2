"""What a study found: its trials and finale as a run, what the best gained, and its settings."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from policies.allocators.registry import POLICIES
from sweeps.analyse.best import judge_all, pairs_of
from sweeps.analyse.gap import references
from sweeps.analyse.objective import SERVED
from sweeps.analyse.rows import Record, at
from sweeps.analyse.statistics import Interval, interval
from sweeps.analyse.table import Group, Table
from sweeps.plan.experiment import ExperimentSpec
from sweeps.run.findings import Findings, keep
from sweeps.run.reading import RunParts, RunShape, read_run
from sweeps.run.store import RunDirectory
from sweeps.study.family_findings import (
    FamilyFound,
    SettingAlone,
    best_of_families,
    settings_alone,
)
from sweeps.study.first import LEVELS
from sweeps.study.fleet_size import ATTAINED
from sweeps.study.trials import BASE, StudyGain, Trials, read_trials, study_gain


@dataclass(frozen=True)
class Setting:
    """What a trial sets, beside what the base has there."""

    path: str
    base: Any
    value: Any


@dataclass(frozen=True)
class Cheapest:
    """The cheapest fleet of a study of fleets."""

    chosen: str
    rival: str | None
    """Of its trial; None where `chosen` names it."""
    device: str
    cost: str
    """What is counted: cards, watts, or a price."""
    sizes: dict[str, tuple[float | None, float | None]]
    """Contender -> cards and cost, the best first."""
    kept: list[tuple[str, Interval]]
    """Each constraint's metric, and what the best has of it."""
    replications: int


@dataclass(frozen=True)
class StudyFindings:
    """Of the trials that are there. Without a finale there is no gain."""

    trials: Trials = field(repr=False)
    best: tuple[int, float] | None
    """The trial that is best in the search, and its value of the first objective; None where none
    keeps the constraints."""
    trial: int | None
    """The trial that was chosen in the finale, else the best."""
    rival: str | None
    """As which rival, where that is not the trial's own."""
    settings: list[Setting]
    """All that the chosen one sets."""
    by_objective: list[tuple[str, float | None, float | None]]
    gain: StudyGain | None
    cheapest: Cheapest | None
    failed: int
    states: dict[str, int]
    """How many trials are complete, pruned, infeasible and failed."""
    phase: str | None
    """Who proposed the chosen trial: `first`, `random` or `tpe`."""
    families: list[FamilyFound]
    alone: list[SettingAlone]
    """Each setting of the chosen one changed alone."""
    constrained: list[tuple[str, float | None, float | None]]
    """Of each constraint its name, and what the chosen one and the base have of its metric."""


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


STUDY = RunShape(
    {"space": dict, "base": dict, "name": str},
    {"trial": int, "overrides": dict, "params": dict},
    guessed,
)


def find_study(run: RunParts, directory: RunDirectory) -> Findings[StudyFindings]:
    """The finale as a group of competitors, and what the trials show. What is wrong is added to the
    problems."""
    trials = read_trials(directory, run)
    judged = trials.objective if len(trials.objectives) == 1 else SERVED
    groups = [Group("The finale", trials.contenders, objective=judged)] * bool(trials.contenders)
    names = [row.name for group in groups for row in group.rows]
    config = {**run.config, "axes": {"contender": names}, "compare": "contender"}
    asked = config.get("trials")
    table = Table(
        config["name"], config.get("question") or "", groups, len(run.records),
        asked if isinstance(asked, int) else len(run.records), config, run.provenance,
        directory.path, run.problems, "trials",
    )  # fmt: skip
    held = [references(group) for group in groups]
    pairs = [pairs_of(group) for group in groups]
    return Findings(table, judge_all(groups), held, _found(trials, config), pairs=pairs)


def keep_study(directory: RunDirectory) -> None:
    """Write what the study in a directory found beside its results."""
    keep(find_study(read_run(directory, {"study": STUDY}), directory))


def _found(trials: Trials, config: dict[str, Any]) -> StudyFindings:
    best, winner = trials.best(), trials.winner()
    fleet = config.get("fleet")
    return StudyFindings(
        trials,
        None if best is None else (best["trial"], trials.first(best)),
        None if winner is None else winner["trial"],
        trials.rival,
        [] if winner is None else _settings(config, winner, (trials.limit or {})),
        trials.by_objective(),
        study_gain(trials) if trials.contenders else None,
        _cheapest(trials, winner, config) if fleet and trials.contenders and winner else None,
        sum(record.get("state") == "failed" for record in trials.records),
        dict(Counter(str(record.get("state", "complete")) for record in trials.records)),
        None if winner is None else winner.get("phase"),
        best_of_families(trials), settings_alone(trials), trials.constrained(),
    )  # fmt: skip


def _settings(config: dict[str, Any], winner: Record, known: dict[str, Any]) -> list[Setting]:
    """All that it sets; where a balance sets its levels, those that came of it. The base as a
    trial has nothing else than the base."""
    levels = known.get("chosen", {}).get("levels")
    found = []
    for path, value in winner["overrides"].items():
        own = levels if path == LEVELS and value == [] and levels else value
        base = own if winner.get("first") == BASE else _of_base(config["base"], path)
        found.append(Setting(path, base, own))
    return found


def _of_base(base: dict[str, Any], path: str) -> Any:
    """What the base has there; the default of its policy where it names none."""
    *head, option = path.split(".")
    found, policy = at(base, *head, option), at(base, *head)
    if found is not None or tuple(head) != ExperimentSpec.policy_path:
        return found
    name = policy["name"] if isinstance(policy, dict) else policy
    kind = POLICIES.get(str(name))
    info = kind.Options.model_fields.get(option) if kind else None
    return None if info is None else info.get_default(call_default_factory=True)


def _cheapest(trials: Trials, winner: Record, config: dict[str, Any]) -> Cheapest:
    """How the cheapest fleet keeps the constraints, and how much dearer others are."""
    best, kept = trials.contenders[0], []
    for each in config["constraints"]:
        most = 1.0 if each["metric"] == ATTAINED else math.inf
        among = interval(best.values(each["metric"], list(best.replications))).within(0.0, most)
        kept.append((each["metric"], among))
    device = winner["overrides"].get("device", at(config["base"], "device"))
    sizes = {row.name: (row.mean("cards"), row.mean("cost")) for row in trials.contenders}
    return Cheapest(
        trials.chosen, winner["rival"] if trials.rival is None else None, device,
        config["fleet"]["cost"], sizes, kept, len(best.replications),
    )  # fmt: skip

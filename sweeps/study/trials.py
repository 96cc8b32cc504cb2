"""A study's trials and finale as its run directory has them: who did best, and against whom."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hwmodel.description.units import number
from hwmodel.description.yaml_writer import to_yaml_flow
from sweeps.analyse.best import NEGLIGIBLE
from sweeps.analyse.figures import FIGURES, THROUGHPUT
from sweeps.analyse.least import Constraint
from sweeps.analyse.objective import OBJECTIVES, Objective, objective_of
from sweeps.analyse.rows import Record
from sweeps.analyse.statistics import Interval, family_signs, interval, relative_gap
from sweeps.analyse.table import Row
from sweeps.run.reading import RunParts
from sweeps.run.store import RunDirectory
from sweeps.study.front import costs, front

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

FINALE, LIMIT, PROFILE = "finale.jsonl", "limit.json", "profile.jsonl"
BEST, BASE = "best", "base"
"""Names of the chosen trial and of the base experiment among what the finale compares."""
LEAST = 50
"""Trials below which no importances are told (assumed): the best tenth would be four or fewer."""
RESAMPLES = 100
_BOOTSTRAP = 0xB007
"""Seed of the resamples."""


@dataclass
class Trials:
    """The trials that were told, in order of numbers, and what the finale compared."""

    records: list[Record]
    objectives: list[dict[str, Any]]
    ceilings: list[str]
    space: dict[str, Any]
    contenders: list[Row] = field(default_factory=list)
    """The chosen trial first, with the replications that the search never saw; none where there is
    no finale yet."""
    chosen: str = ""
    """Its name in the finale."""
    trial: int | None = None
    """Whose settings the chosen one has."""
    rival: str | None = None
    """As which rival, where that is not the trial's own; of a study of fleets."""
    constraints: list[Constraint] = field(default_factory=list)
    limit: dict[str, Any] | None = None
    """What known lengths would leave unused at least, and what the chosen trial and the base do."""
    families: dict[str, Any] = field(default_factory=dict)
    profile: list[dict[str, Any]] = field(default_factory=list)
    """The chosen trial with one setting changed, a line a point (`sweeps.study.profile`)."""
    trial_of: dict[str, int] = field(default_factory=dict)
    """Of each contender that is a trial its number."""

    @property
    def metric(self) -> str:
        """The first objective's."""
        return str(self.objectives[0].get("metric", THROUGHPUT))

    @property
    def words(self) -> str:
        """The first objective in words."""
        return words(self.metric)

    @property
    def objective(self) -> Objective:
        """The first one."""
        found = self.objectives[0]
        return objective_of({k: v for k, v in found.items() if k in ("metric", "direction")})

    def says(self, value: float) -> str:
        """What a contender with this value of the first objective does: `serves 9 tok/s`."""
        objective = self.objective
        if objective in OBJECTIVES.values():
            return objective.says.format(objective.text(value))
        return f"has {objective.figure.text(value)} {self.words}"

    @property
    def sign(self) -> int:
        """1 where more of it is better, else -1."""
        return -1 if self.objectives[0].get("direction") == "minimize" else 1

    def values(self, record: Record) -> list[float] | None:
        """A trial's values of the objectives, None where it failed."""
        found = record.get("values")
        if not isinstance(found, dict):
            return None
        values = [found.get(o.get("metric", THROUGHPUT)) for o in self.objectives]
        return None if None in values else [float(v) for v in values if v is not None]

    def kept(self) -> list[Record]:
        """Trials that have values and keep the constraints."""
        return [
            record
            for record in self.records
            if self.values(record) is not None and not broken(record)
        ]

    def alike(self) -> list[tuple[Record, float]]:
        """Trials that served the same, and their values of the first objective: on the first rung
        of successive halving, where there is one."""
        short = [(r, each.get(self.metric)) for r in self.records if (each := r.get("short"))]
        found = [(record, value) for record, value in short if value is not None]
        return found or [(record, self.first(record)) for record in self.kept()]

    def best(self) -> Record | None:
        """The best trial by the first objective, the first of several."""
        kept = self.kept()
        return max(kept, key=lambda r: self.sign * self.first(r)) if kept else None

    def winner(self) -> Record | None:
        """The trial that was chosen in the finale, else the best one."""
        named = (r for r in self.records if r["trial"] == self.trial)
        return next(named, None) or self.best()

    def by_objective(self) -> list[tuple[str, float | None, float | None]]:
        """Of each objective its words, what the winner has and what the base has, in the finale
        where there is one."""
        metrics = [str(each.get("metric", THROUGHPUT)) for each in self.objectives]
        if not self.contenders:
            won = self.winner()
            values = (won and self.values(won)) or []
            return [(words(m), value, None) for m, value in zip(metrics, values, strict=False)]
        best, base = self.contenders[0], self.contender(BASE)
        theirs = [None if base is None else base.mean(metric) for metric in metrics]
        pairs = zip(metrics, theirs, strict=True)
        return [(words(metric), best.mean(metric), other) for metric, other in pairs]

    def constrained(self) -> list[tuple[str, float | None, float | None]]:
        """Of each constraint its name, and what the winner and the base have of its metric: in the
        finale where there is one, else the winner's in the search."""
        if self.contenders:
            rows = [self.contenders[0], self.contender(BASE)]
            return [
                (each.name, *(row and row.mean(each.metric) for row in rows))  # type: ignore[misc]
                for each in self.constraints
            ]
        metrics = (self.winner() or {}).get("metrics") or {}
        return [(each.name, metrics.get(each.metric), None) for each in self.constraints]

    def broken_by(self, contender: Row | None) -> tuple[str, ...]:
        """The constraints that a contender breaks in the finale, by their names."""
        if contender is None:
            return ()
        means = [(each, contender.mean(each.metric)) for each in self.constraints]
        return tuple(
            each.name for each, mean in means if mean is not None and each.violation(mean) > 0
        )

    def first(self, record: Record) -> float:
        """A trial's value of the first objective."""
        values = self.values(record)
        assert values is not None
        return values[0]

    def contender(self, name: str) -> Row | None:
        """One of the finale by its name."""
        return next((row for row in self.contenders if row.name == name), None)

    def best_first(self) -> str | None:
        """The trial that needed no search and is the best in the finale, by its name there; None
        without one."""
        names = {f"trial {r['trial']}": r["first"] for r in self.records if r.get("first")}
        if self.chosen in names:
            return f"{names[self.chosen]} ({self.chosen})"
        rows = [f"{name} ({trial})" for trial, name in names.items()]
        there = [row for name in rows if (row := self.contender(name)) is not None]
        there += [row for row in [self.contender(BASE)] if row and BASE in names.values()]
        gains = [
            (self.sign * gain.mean, row.name)
            for row in there
            if (gain := self.gain(row)) is not None
        ]
        return min(gains)[1] if gains else BASE if BASE in names.values() else None

    def gain(self, other: Row) -> Interval | None:
        """How much more the chosen trial has than another, paired by replication."""
        best = self.contenders[0]
        among = [r for r in best.replications if r in other.replications]
        ours, theirs = best.values(self.metric, among), other.values(self.metric, among)
        if len(ours) != len(theirs) or not ours or min(*ours, *theirs) <= 0:
            return None
        return relative_gap(ours, theirs)

    def closed(self, ceiling: Row) -> Interval | None:
        """The share of the way from the base to a ceiling that the chosen trial went; None where
        the ceiling is not above the base in every replication."""
        base = self.contender(BASE)
        if base is None:
            return None
        best = self.contenders[0]
        among = [
            r for r in best.replications if r in base.replications and r in ceiling.replications
        ]
        rows = zip(*(row.values(self.metric, among) for row in (best, base, ceiling)), strict=True)
        ways = [(self.sign * (a - low), self.sign * (high - low)) for a, low, high in rows]
        if not ways or min(whole for _, whole in ways) <= 0:
            return None
        return interval([way / whole for way, whole in ways])


def words(metric: str) -> str:
    """A metric as tables head it."""
    return next((figure.heading for figure in FIGURES if figure.metric == metric), metric)


def broken(record: Record) -> bool:
    """Whether a trial breaks a constraint."""
    found = record.get("constraints")
    return isinstance(found, dict) and any(value > 0 for value in found.values())


def unbeaten(trials: Trials) -> list[Record]:
    """The trials that keep the constraints and that no other such one beats in all objectives."""
    kept = trials.kept()
    directions = [objective.get("direction", "maximize") for objective in trials.objectives]
    return [kept[i] for i in front([costs(trials.values(r) or (), directions) for r in kept])]


def importances(trials: Trials) -> dict[str, Interval]:
    """Setting -> share of importance for the first objective, most important first (PED-ANOVA,
    Watanabe et al., IJCAI 2023: how far the best tenth of the trials is apart from all of them in
    this setting); empty where no setting varies.

    The interval is from the 2.5th to the 97.5th percentile of RESAMPLES bootstrap samples of the
    trials (Efron and Tibshirani 1993, 13.3), with a seed of its own, and wider where the share of
    all trials lies outside, as it may, since shares of samples are biased: what another draw of as
    many trials could have shown, not what another search would.
    """
    from optuna.trial import create_trial  # heavy

    kept = [(settings(record), trials.sign * value) for record, value in trials.alike()]
    values: dict[str, list[Any]] = {}
    for found, _ in kept:
        for name, value in found.items():
            values.setdefault(name, []).append(value)
    varied = {name: _distribution(each) for name, each in values.items() if len(set(each)) > 1}
    if not varied:
        return {}
    made = []
    for found, value in kept:
        params = {name: found[name] for name in varied if name in found}
        drawn = {name: varied[name] for name in params}
        made.append(create_trial(params=params, distributions=drawn, value=-value))
    shares, rng = _shares(made), np.random.default_rng(_BOOTSTRAP)
    again = [
        _shares([made[i] for i in rng.integers(0, len(made), len(made))]) for _ in range(RESAMPLES)
    ]
    intervals = {}
    for name, share in shares.items():
        ends = np.quantile([each.get(name, 0.0) for each in again], (0.025, 0.975))
        low, *_, high = sorted((share, *map(float, ends)))
        intervals[name] = Interval(share, low, high, len(made))
    return intervals


def _shares(made: list[FrozenTrial]) -> dict[str, float]:
    """Optuna's importances of trials whose values are to be small."""
    import optuna  # heavy

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="minimize")
    study.add_trials(made)
    with warnings.catch_warnings():  # a sample in which all of the best are equal
        warnings.simplefilter("ignore")
        return optuna.importance.get_param_importances(study)


def _distribution(values: Sequence[Any]) -> BaseDistribution:
    """What a setting may have been drawn from."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if all(isinstance(value, float) for value in values):
        return FloatDistribution(min(values), max(values))
    return CategoricalDistribution(list(dict.fromkeys(values)))


def settings(record: Record) -> dict[str, Any]:
    """What a trial sets, as numbers where it can be: quantities in their base unit, members of a
    list of numbers one by one. Any other list is one setting, in YAML."""
    found: dict[str, Any] = {}
    for path, value in record["overrides"].items():
        numbers = [number(each) for each in (value if isinstance(value, list) else [value])]
        if None in numbers:
            found[path] = to_yaml_flow(value)
        elif isinstance(value, list):
            found |= {f"{path}[{i}]": each for i, each in enumerate(numbers)}
        else:
            found[path] = numbers[0]
    for name, value in record["params"].items():
        if name.endswith(".by"):  # a balance, or levels that are drawn
            found.pop(name.removesuffix("levels.by") + "balance", None)
            found[name] = value
    return found


def read_trials(directory: RunDirectory, run: RunParts) -> Trials:
    """Trials and finale as far as they can be read; what is wrong is added to the problems."""
    config = run.config
    objectives = [o for o in config.get("objectives") or [{}] if isinstance(o, dict)] or [{}]
    for objective in objectives:
        objective.setdefault("metric", THROUGHPUT)
    found = Trials(
        sorted(run.records, key=lambda record: record["trial"]), objectives,
        list(config.get("ceilings") or ()), config["space"],
    )  # fmt: skip
    try:
        wanted = config.get("constraints") or ()
        found.constraints = [Constraint.model_validate(each) for each in wanted]
    except (TypeError, ValueError):
        run.problems.append("config.yaml: constraints cannot be read")
    _add_finale(found, directory, run.problems)
    found.limit = directory.read_json(LIMIT)
    found.families = config.get("families") or {}
    if (directory.path / PROFILE).is_file():
        found.profile = [line for _, line in directory.lines(PROFILE)]
    return found


def _add_finale(trials: Trials, directory: RunDirectory, problems: list[str]) -> None:
    if not (directory.path / FINALE).is_file():
        problems.append(f"{FINALE} is missing: there are no gains on replications that are new")
        return
    rows: dict[str, Row] = {}
    searched: dict[str, tuple[int | None, str | None]] = {}
    try:
        for _, line in directory.lines(FINALE):
            row = rows.setdefault(line["contender"], Row(line["contender"], ""))
            row.replications[line["replication"]] = line["metrics"]
            searched[row.name] = line["trial"], line["rival"]
    except (TypeError, KeyError):
        problems.append(f"{FINALE} cannot be read; the finale is left out")
        return
    base = rows.get(BASE)
    judged = set(base.replications) if base else set()
    whole = [row for row in rows.values() if judged and judged <= set(row.replications)]
    for row in whole:
        row.replications = {r: row.replications[r] for r in sorted(judged)}
        row.raw = {r: {} for r in judged}
        row.seeds = {r: r for r in judged}
    whole.sort(key=lambda row: not row.name.startswith("trial "))
    if not whole or not whole[0].name.startswith("trial "):
        problems.append(f"{FINALE}: the chosen trial is not among what was compared")
        return
    trials.chosen, whole[0].name = whole[0].name, BEST
    trials.trial, trials.rival = searched[trials.chosen]
    trials.trial_of = {
        row.name: number for row in whole[1:] if (number := searched[row.name][0]) is not None
    }
    for row in whole:
        row.overrides = {"contender": row.name}
    trials.contenders = whole


@dataclass(frozen=True)
class StudyGain:
    """What the chosen trial of a study has on replications that the search did not use."""

    chosen: str
    metric: str
    """In words."""
    mean: float
    says: str
    """What it does, with the mean."""
    replications: int
    gains: dict[str, Interval]
    """Over each other contender."""
    closed: dict[str, Interval | None]
    """Ceiling -> share of the gap from the base to it; None where it is not above the base."""
    first: str | None = None
    """The best of the trials that needed no search; None where there are none."""
    added: Interval | None = None
    """What the chosen trial has more than that; None where it is that, or unknown."""
    broken: tuple[str, ...] = ()
    """The constraints that the base breaks, by their names."""
    strongest: str | None = None
    """The best of those that serve significantly more (Holm over all that it was compared with,
    ceilings apart) and by more than nothing counts for; None where none does."""


def study_gain(trials: Trials) -> StudyGain:
    """What the finale says of the chosen trial."""
    best, *others = trials.contenders
    gains = {row.name: gain for row in others if (gain := trials.gain(row)) is not None}
    ceilings = ((name, trials.contender(name)) for name in trials.ceilings)
    closed = {name: trials.closed(row) for name, row in ceilings if row is not None}
    mean, count = best.mean(trials.metric) or 0.0, len(best.replications)
    first = trials.best_first()
    return StudyGain(
        trials.chosen, trials.words, mean, trials.says(mean), count, gains, closed, first,
        gains.get(first or ""), trials.broken_by(trials.contender(BASE)),
        _strongest({n: gap for n, gap in gains.items() if n not in trials.ceilings}, trials.sign),
    )  # fmt: skip


def _strongest(gains: dict[str, Interval], sign: int) -> str | None:
    signs = judged(gains)
    ahead = [name for name, each in signs.items() if each * sign < 0]
    return min(ahead, key=lambda name: sign * gains[name].mean, default=None)


def judged(gains: Mapping[str, Interval]) -> dict[str, int]:
    """1 or -1 where a relative gap of the family is one after Holm, and its mean is more than what
    counts as none; else 0."""
    logs = {name: each.mapped(math.log1p) for name, each in gains.items()}
    return {
        name: 0 if abs(gains[name].mean) <= NEGLIGIBLE else sign
        for name, sign in family_signs(logs).items()
    }

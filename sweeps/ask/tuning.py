"""What each setting of a server is worth: goodput at an objective, one setting changed at a time.

The base is what an engine starts with. Every other setting is tried alone, on the same requests as
the base, so that ratios are paired by replication. Those that are significantly better (Holm over
all that are tried) are taken together, and held against the base again on requests that had no part
in the choice. Goodput is found as in a sweep (`sweeps.run.goodput`) and counts a card: more cards
are worth their number or less.

On memory that is simulated, whatever changes where KV lies is served once, saturated and with
sampled memory; the searches have the efficiencies that were found there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hwmodel.description.description import DescriptionError
from sweeps.analyse.best import NEGLIGIBLE, WIDE
from sweeps.analyse.statistics import Interval, family_signs, grown, interval, log_ratios
from sweeps.ask.fit import linked
from sweeps.ask.server_settings import FACTORS, SettingsQuestion, changed, settings_of, value_text
from sweeps.plan.experiment import (
    ALL_AT_ONCE,
    CALIBRATION,
    ExperimentSpec,
    Task,
    capacity_task,
    device_of,
    run_task,
    with_memory,
)
from sweeps.run.capacity import answered
from sweeps.run.goodput import goodput_task
from sweeps.run.progress import Progress

SEARCH = 9
"""Runs at a load that a goodput takes: one or two doublings, then halvings to 1 %."""
BELOW = 0.75
"""Of the capacity: the load of the run that is timed (assumed)."""

Says = Literal["better", "worse", "no matter", "undecided", "not possible"]


@dataclass(frozen=True)
class TuningChoice:
    """Settings beside the base's, by factor; none: the base."""

    values: dict[str, Any]
    experiment: ExperimentSpec
    rates: dict[int, float] = field(default_factory=dict)
    """Requests a second within the objective, by replication."""
    why: str = ""
    """Why there is none."""

    @property
    def name(self) -> str:
        return ", ".join(value_text(*each) for each in self.values.items()) or "as started"

    @property
    def cards(self) -> int:
        return self.experiment.serving.tensor_parallel

    @property
    def rate(self) -> float | None:
        """The mean of its replications, requests a second."""
        return math.fsum(self.rates.values()) / len(self.rates) if self.rates else None

    def over(self, base: TuningChoice) -> Interval | None:
        """ln of what it carries a card over the base; None where one of them carries nothing."""
        both = sorted(self.rates.keys() & base.rates.keys())
        if not both:
            return None
        ours, theirs = ([c.rates[r] / c.cards for r in both] for c in (self, base))
        return interval(log_ratios(ours, theirs))


@dataclass(frozen=True)
class Worth:
    """What a choice is worth against the base."""

    choice: TuningChoice
    lead: Interval | None
    """ln of the ratio, a card."""
    says: Says

    @property
    def gain(self) -> Interval | None:
        return None if self.lead is None else self.lead.mapped(grown)


@dataclass(frozen=True)
class Tuned:
    """The base, what each other setting is worth, and the best of them held against it again."""

    question: SettingsQuestion
    base: TuningChoice
    settings: dict[str, Any]
    """Of the best, by factor; all that flags are printed for."""
    worths: list[Worth]
    best: TuningChoice | None
    confirmed: Worth | None
    """On other requests; None where nothing is better."""

    @property
    def idle(self) -> list[str]:
        """Factors whose values are all within `WIDE` of the base."""
        leads: dict[str, list[Interval | None]] = {}
        for worth in self.worths:
            leads.setdefault(next(iter(worth.choice.values)), []).append(worth.gain)
        return [
            name for name, found in leads.items()
            if all(gain and gain.low >= -WIDE and gain.high <= WIDE for gain in found)
        ]  # fmt: skip


def choices(question: SettingsQuestion) -> list[TuningChoice]:
    """The base, and each setting changed alone. Raises DescriptionError where the base cannot be
    described, or there is nothing to try."""
    base = question.experiment()
    own = settings_of(base)
    found = [TuningChoice({}, base)]
    for factor in question.factors():
        if factor.name == "cards" and not linked(device_of(base)):
            continue
        for value in factor.tried(own[factor.name]):
            values = {factor.name: value}
            try:
                found.append(TuningChoice(values, changed(question, values)))
            except DescriptionError as error:
                found.append(TuningChoice(values, base, why=error.message))
    if len(found) == 1:
        raise DescriptionError(
            f"nothing else to try; {question.device} describes no link", "--only"
        )
    return found


def with_efficiencies(
    choices: Sequence[TuningChoice], known: dict[str, Any], jobs: int, progress: Progress
) -> list[TuningChoice]:
    """The choices on memory of the efficiencies that each has where it is sampled, all requests
    there at once; as they are where memory is given. known: those found so far, which grow."""
    if device_of(choices[0].experiment).given is not None:
        return [*choices]
    first = {_place(each): each for each in reversed(choices) if not each.why}
    missing = {place: each for place, each in first.items() if place not in known}
    tasks = [each.experiment for each in missing.values()]
    with progress.stage("memory", len(tasks)) as done:
        for index, value in answered(_efficiencies, tasks, jobs):
            known[list(missing)[index]] = value
            done()
    told = []
    for each in choices:
        value = known.get(_place(each))
        if isinstance(value, dict):
            each = replace(each, experiment=with_memory(each.experiment, **value))
        told.append(replace(each, why=value) if isinstance(value, str) else each)
    return told


def _place(choice: TuningChoice) -> str:
    """What the efficiencies depend on, as text: what moves KV."""
    relaid = {each.name for each in FACTORS if each.relaid}
    return str(sorted((k, v) for k, v in choice.values.items() if k in relaid))


def _efficiencies(experiment: ExperimentSpec) -> dict[str, float]:
    """Shares of the peak that the phases reach. Raises DescriptionError."""
    waiting = with_memory(experiment, fidelity="sampled")
    waiting = waiting.model_copy(update={"arrivals": ALL_AT_ONCE, "load": None})
    found: dict[str, float] = run_task(Task(waiting, CALIBRATION, None))["memory"]["efficiency"]
    return found


def searched(
    choices: Sequence[TuningChoice],
    replications: Sequence[int],
    jobs: int,
    progress: Progress,
    stage: str,
) -> list[TuningChoice]:
    """The choices with their goodput in these replications; why there is none where one of them
    has none."""
    asked = [(i, r) for i, each in enumerate(choices) if not each.why for r in replications]
    tasks = [(choices[i].experiment, (r,)) for i, r in asked]
    rates: dict[int, dict[int, float]] = {}
    whys: dict[int, str] = {}
    with progress.stage(stage, len(tasks)) as done:
        for index, value in answered(goodput_task, tasks, jobs):
            i, r = asked[index]
            if isinstance(value, str):
                whys[i] = value
            else:
                rates.setdefault(i, {})[r] = value
            done()
    return [
        each if each.why else replace(each, why=whys[i]) if i in whys
        else replace(each, rates=dict(sorted(rates[i].items())))
        for i, each in enumerate(choices)
    ]  # fmt: skip


def tune(
    question: SettingsQuestion, choices: Sequence[TuningChoice], jobs: int, progress: Progress
) -> Tuned:
    """What each of `choices` is worth, and the best held against the base again. Raises
    DescriptionError where none carries anything."""
    known: dict[str, Any] = {}
    first = range(1, question.replications + 1)
    fresh = range(question.replications + 1, 2 * question.replications + 1)

    def measured(some: Sequence[TuningChoice], on: Sequence[int], stage: str) -> list[TuningChoice]:
        some = (
            some
            if question.fidelity == "analytic"
            else with_efficiencies(some, known, jobs, progress)
        )
        return searched(some, on, jobs, progress, stage)

    base, *others = measured(choices, first, "goodput")
    each = worths(base, others)
    if base.why and not any(worth.choice.rates for worth in each):
        raise DescriptionError(base.why, "size settings")
    best = together(question, each)
    if not best:
        return Tuned(question, base, settings_of(base.experiment), each, None, None)
    again, *tried = measured([replace(choices[0]), *best], fresh, "confirmation")
    confirmed = worths(again, tried)
    chosen = max(confirmed, key=_rank)
    return Tuned(question, base, settings_of(chosen.choice.experiment), each, chosen.choice, chosen)


def goodput_s(experiment: ExperimentSpec) -> float:
    """CPU seconds that one goodput takes, about: a run below capacity is timed. Raises
    DescriptionError."""
    rate = BELOW * capacity_task(Task(experiment, CALIBRATION, None))
    start = time.process_time()
    run_task(Task(experiment, CALIBRATION, rate))
    return SEARCH * (time.process_time() - start)


def worths(base: TuningChoice, others: Sequence[TuningChoice]) -> list[Worth]:
    """Each against the base, Holm over all. Where the base carries nothing, what carries anything
    is better."""
    leads = {i: lead for i, each in enumerate(others) if (lead := each.over(base)) is not None}
    signs = family_signs(leads)
    found = []
    for i, each in enumerate(others):
        says: Says = "not possible" if each.rate is None else "better"
        if (lead := leads.get(i)) is not None:
            says = _says(lead, signs[i])
        elif base.rate is not None:
            says = "not possible"
        found.append(Worth(each, lead, says))
    return found


def _says(lead: Interval, sign: int) -> Says:
    low, high = grown(lead.low), grown(lead.high)
    if low >= -NEGLIGIBLE and high <= NEGLIGIBLE:
        return "no matter"
    if sign:
        return "better" if sign > 0 else "worse"
    return "no matter" if low >= -WIDE and high <= WIDE else "undecided"


def together(question: SettingsQuestion, worths: Sequence[Worth]) -> list[TuningChoice]:
    """The best value of each factor that is better than the base's, together; and the best single
    one. Nothing where none is better. Raises DescriptionError."""
    best: dict[str, Worth] = {}
    for worth in worths:
        name = next(iter(worth.choice.values))
        if worth.says == "better" and (name not in best or _rank(worth) > _rank(best[name])):
            best[name] = worth
    if not best:
        return []
    alone = max(best.values(), key=_rank).choice
    if len(best) == 1:
        return [replace(alone, rates={})]
    values = {name: worth.choice.values[name] for name, worth in best.items()}
    try:
        joint = TuningChoice(values, changed(question, values))
    except DescriptionError:
        return [replace(alone, rates={})]
    return [joint, replace(alone, rates={})]


def _rank(worth: Worth) -> float:
    return worth.lead.mean if worth.lead is not None else (worth.choice.rate or 0.0)

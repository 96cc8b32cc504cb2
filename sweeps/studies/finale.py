"""The finale of a study: the best trials, the base, references and ceilings on simulated memory, on
replications that the search never saw.

The best of the top trials is chosen on the first of those replications, and gains are measured on
the ones after them, so that the choice does not bias the gain.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from policies.allocators.odma import OdmaOptions
from policies.allocators.partition import Partition, best_partition, bounds_at, unused_share
from policies.requests.requests import IntArray
from sweeps.experiments.experiment import (
    ALL_AT_ONCE,
    ExperimentSpec,
    Task,
    requests_of,
    workload_of,
)
from sweeps.experiments.sweep_run import apart, flat
from sweeps.results.store import plain, write_atomically
from sweeps.studies.contenders import Contender, Finale
from sweeps.studies.journal import RESULT
from sweeps.studies.sampler import broken, ranking
from sweeps.studies.space import Overrides
from sweeps.studies.study_run import StudyFailed, StudyRun
from sweeps.studies.study_spec import Study

FINALE, LIMIT = "finale.jsonl", "limit.json"
LEAST_UNUSED = "least unused"
LEVELS = "serving.policy.levels"


def run_finale(run: StudyRun) -> Finale | None:
    """Serve what is not served yet; None where no trial was told a value."""
    spec = run.study.spec.finale
    assert spec is not None
    top = [t for t in ranking(run.study, run.journal.trials()) if not broken(t)][: spec.top]
    if not top:
        return None
    first = run.study.base.replications + 1
    choosing = range(first, first + spec.choose)
    judging = range(choosing.stop, choosing.stop + spec.replications)
    tried = [Contender(f"trial {t.number}", t.user_attrs[RESULT]["overrides"]) for t in top]
    if len(tried) > 1:
        _serve(run, tried, choosing, "choice")
    chosen = tried[0]
    if len(tried) > 1:
        objective = run.study.spec.objectives[0]
        sign = -1 if objective.direction == "maximize" else 1
        chosen = min(tried, key=lambda each: sign * each.mean(objective.metric, choosing))
    others = [Contender(point.control, point.overrides) for point in run.study.points]
    known = limit(run.study, chosen.overrides)
    if known is not None:
        others.append(_least_unused(known))
        write_atomically(run.directory.path / LIMIT, json.dumps(_record(known), indent=2) + "\n")
    _serve(run, [chosen, *others], judging, "finale")
    found = Finale(chosen, others, tried, choosing, judging)
    _write(run, found)
    return found


def _serve(run: StudyRun, contenders: list[Contender], among: range, stage: str) -> None:
    """Fill in the metrics of these replications, from the journal or by serving."""
    missing = []
    for contender in contenders:
        for replication in among:
            noted = run.journal.note(_name(contender, replication))
            if noted is None:
                missing.append((contender, replication))
            else:
                contender.metrics[replication] = noted
    tasks = [
        Task(run.study.experiment(contender.overrides), replication, run.rate_per_s)
        for contender, replication in missing
    ]
    whole = len(contenders) * len(among)
    with run.progress.stage(stage, whole, whole - len(tasks)) as done:
        for outcome in run.workers.outcomes(tasks):
            contender, replication = missing[outcome.index]
            name = _name(contender, replication)
            if outcome.error is not None:
                raise StudyFailed(f"failed: {name}: {outcome.error}")
            metrics = plain(flat(apart(outcome.value)[0]))
            kept = {k: v for k, v in metrics.items() if not isinstance(v, list)}
            run.journal.write_note(name, kept)
            contender.metrics[replication] = kept
            done()


def _name(contender: Contender, replication: int) -> str:
    return f"finale, {contender.name}, replication {replication}"


def known_lengths(study: Study) -> IntArray:
    """Output tokens of the requests that trials were measured on, as the engine cuts them; int64
    (n,)."""
    experiment = study.base
    workload = workload_of(experiment.model_copy(update={"arrivals": ALL_AT_ONCE}))
    most = experiment.serving.engine.max_tokens or np.iinfo(np.int64).max
    served = [
        requests_of(experiment, replication, None, workload).output_tokens
        for replication in range(1, experiment.replications + 1)
    ]
    return np.minimum(np.concatenate([s[experiment.warmup_requests :] for s in served]), most)


class Limit(NamedTuple):
    """Were every length known: the bounds that leave the least share of what is reserved for output
    unused, and the shares that the quantiles of the chosen trial and of the base leave."""

    best: Partition
    chosen: float
    base: float


def limit(study: Study, overrides: Overrides) -> Limit | None:
    """The least share for as many buckets as these overrides have, and theirs and the base's; None
    where the buckets' quantiles are not searched."""
    if LEVELS not in study.spec.space:
        return None
    lengths = known_lengths(study)
    ours = _policy(study.experiment(overrides))
    best = best_partition(lengths, ours.buckets, ours.align)
    shares = [_unused(lengths, policy) for policy in (ours, _policy(study.base))]
    return Limit(best, *shares)


def _policy(experiment: ExperimentSpec) -> OdmaOptions:
    policy = experiment.serving.policy
    assert isinstance(policy, OdmaOptions)
    return policy


def _unused(lengths: IntArray, policy: OdmaOptions) -> float:
    """What the policy's quantiles of the very lengths leave unused."""
    levels = policy.levels or [i / policy.buckets for i in range(1, policy.buckets + 1)]
    return unused_share(lengths, bounds_at(lengths, levels, policy.align), int(lengths.max()))


def _least_unused(known: Limit) -> Contender:
    """The base with the levels that leave least unused, in as many buckets as the chosen."""
    levels = list(known.best.levels)
    overrides = {LEVELS: levels, LEVELS.replace("levels", "buckets"): len(levels)}
    return Contender(f"{LEAST_UNUSED}, {len(levels)} buckets", overrides)


def _record(known: Limit) -> dict[str, Any]:
    return {
        "bounds": list(known.best.bounds),
        "levels": list(known.best.levels),
        "unused": {"least": known.best.unused, "chosen": known.chosen, "base": known.base},
    }


def _write(run: StudyRun, finale: Finale) -> None:
    """A line a contender and replication."""
    lines = [
        {"contender": c.name, "overrides": c.overrides, "replication": r, "metrics": c.metrics[r]}
        for c in [*finale.tried, *finale.others]
        for r in sorted(c.metrics)
    ]
    text = "".join(json.dumps(plain(line), allow_nan=False) + "\n" for line in lines)
    write_atomically(run.directory.path / FINALE, text)

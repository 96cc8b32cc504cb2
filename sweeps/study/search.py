"""A study under way: trials in batches into a journal, whatever the workers and their order.

One process owns it: it asks for a batch, has it evaluated, and tells it in the order of numbers. A
trial hangs on the study's YAML and its number alone: on the sampler's seed for that number, on the
trials of the batches before, and on the efficiencies noted for its batch. Those are measured for
the best of all batches but the one under way, so that no trial waits for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hwmodel.description.description import DescriptionError, KeyPath
from hwmodel.description.files import steady
from hwmodel.description.yaml_writer import to_yaml
from sweeps.analyse.least import Constraint
from sweeps.analyse.objective import Objective
from sweeps.analyse.rows import flat, is_number
from sweeps.plan.experiment import ExperimentSpec, Task, measure
from sweeps.plan.sweep_spec import Point
from sweeps.run.capacity import WantedCapacity, calibrate
from sweeps.run.outcome import attempt
from sweeps.run.progress import Progress
from sweeps.run.provenance import argv, provenance, refuse_changes, resolve
from sweeps.run.rehearsal import refuse_unknown, rehearse
from sweeps.run.store import (
    CALIBRATION,
    CONFIG,
    FINDINGS,
    RunDirectory,
    default_directory,
    write_atomically,
)
from sweeps.run.sweep_run import refuse_another
from sweeps.study.best_sweep import best_sweep
from sweeps.study.finale import run_finale
from sweeps.study.fleet_finale import fleet_finale
from sweeps.study.journal import RESULT, finished
from sweeps.study.sampler import best
from sweeps.study.study_findings import keep_study
from sweeps.study.study_run import StudyInterrupted, StudyRun, Workers
from sweeps.study.study_spec import Study
from sweeps.study.trial_batch import EVEN, TrialBatch, on_its_memory
from sweeps.study.trials import FINALE

if TYPE_CHECKING:
    pass

BEST = "best.yaml"


@steady
def run_study(
    study: Study, out: Path | None, resume: bool, workers: Workers, progress: Progress
) -> StudyRun:
    """Evaluate the trials and the finale that are not there yet. Nothing is written before the
    first batch is about to begin.

    out: `runs/NAME-N` where it is None. Raises DescriptionError where study, inputs or `out` are
    at fault, StudyInterrupted on Ctrl-C, CapacityFailed and StudyFailed where the machine is.
    """
    directory = RunDirectory(out or default_directory(study.spec.name, resume))
    run = StudyRun(study, directory, workers, progress, total=study.spec.trials)
    again = resume and directory.exists
    if not again:
        directory.refuse_if_taken()
    resolved = resolve(study)
    if study.spec.resolved is not None:
        refuse_changes(study.spec.resolved, resolved, study.document.file)
    config = {**study.config, "resolved": resolved}
    if again:
        refuse_another({**config, "trials": directory.config().get("trials")}, directory)
    with _interruptible(run):
        capacities = dict(directory.read_json(CALIBRATION) or {}) if again else {}
        if not (again and _is_done(study, directory)):
            rehearse_study(study, progress)
        run.rates = rates(study, workers, progress, capacities, study.replications)
        directory.create(config, provenance(study, resolved, argv()), capacities)
        if again and study.spec.trials > directory.config()["trials"]:
            write_atomically(directory.path / CONFIG, to_yaml(config))
        run.open_journal()
        _catch_up(run)
        _search(run)
        if study.spec.finale is not None:
            run.finale = run_finale(run) if study.spec.fleet is None else fleet_finale(run)
            _write_best(run)
        keep_study(directory)
    return run


def _is_done(study: Study, directory: RunDirectory) -> bool:
    """Whether a study in its directory has all that it would write."""
    files = [FINDINGS, *([FINALE] if study.spec.finale else [])]
    there = all((directory.path / name).is_file() for name in files)
    return there and len(list(directory.records())) >= study.spec.trials


@contextmanager
def _interruptible(run: StudyRun) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if not run.is_open:
            raise StudyInterrupted("nothing was finished, nothing was written") from None
        kept = (
            f"{len(run.finished_trials())} of {run.total} trials are kept in {run.directory.path}"
        )
        raise StudyInterrupted(f"{kept}; the same command with --resume continues") from None
    finally:
        run.directory.release()


def rehearse_study(study: Study, progress: Progress) -> None:
    """What cannot work at all, and metrics that are not there, are said before anything else."""
    rivals = study.spec.fleet.rivals if study.spec.fleet else ()
    made = [Point(0, {}, rival, study.experiment(study.rival_set(rival))) for rival in rivals]
    rehearse([*study.points, *made], study.document, progress)
    small = ExperimentSpec.rehearsals([study.base])[0]
    outcome = attempt(measure, 0, Task(on_its_memory(study, small, EVEN), 1, None))
    if outcome.error is not None:
        raise DescriptionError(outcome.error)
    known = [name for name, value in flat(outcome.value).items() if is_number(value)]
    known += study.cost({})
    asked: dict[str, Sequence[Objective | Constraint]] = {
        "objectives": study.spec.objectives,
        "constraints": study.spec.constraints,
    }
    places: dict[KeyPath, str] = {
        (key, i): each.metric for key, items in asked.items() for i, each in enumerate(items)
    }
    refuse_unknown(places, known, study.document)


def rates(
    study: Study, workers: Workers, progress: Progress, capacities: dict[str, float],
    replications: Iterable[int],
) -> dict[int, float | None]:  # fmt: skip
    """The rate that everything is offered in each of these replications: against the best of base
    and references, whose capacities are measured where they are not known, and noted."""
    load = study.base.load
    if load is None or load.relative is None:
        return dict.fromkeys(replications, None if load is None else load.rate_per_s)
    asked = {r: [WantedCapacity(point, r) for point in study.points] for r in replications}
    every = {each.key: each for rivals in asked.values() for each in rivals}
    with progress.stage("capacity", len(every.keys() - capacities.keys())) as done:
        found = calibrate(every, capacities, workers.jobs, workers.cluster)
        for key, capacity in list(found):
            capacities[key] = capacity
            done()
    return {
        r: load.relative * max(capacities[each.key] for each in rivals)
        for r, rivals in asked.items()
    }


def _catch_up(run: StudyRun) -> None:
    """Results that the journal has and the directory, stopped in between, has not."""
    there = {record["trial"] for record in run.directory.records()}
    for trial in run.finished_trials():
        if trial.number not in there:
            run.directory.append(trial.user_attrs[RESULT])
    _write_best(run)


def _write_best(run: StudyRun) -> None:
    """Put the one that the finale chose, or the best trial so far, where there is one, into the
    directory as a sweep."""
    found = best(run.study, run.finished_trials())
    if found is None:
        return
    name, overrides = f"trial {found.number}", found.user_attrs[RESULT]["overrides"]
    if run.finale is not None:
        name, overrides = run.finale.best.name, run.finale.best.overrides
    sweep = best_sweep(run.study, overrides, name)
    write_atomically(run.directory.path / BEST, to_yaml(sweep))


def _search(run: StudyRun) -> None:
    batch = run.study.spec.batch
    done = sum(trial.number < run.total for trial in run.finished_trials())
    with run.progress.stage("trials", run.total, done) as step:
        for begin in range(0, run.total, batch):
            end = min(begin + batch, run.total)
            states = [finished(trial) for trial in run.journal.trials()[begin:end]]
            if len(states) < end - begin or not all(states):
                TrialBatch(run, begin, end, lambda: _write_best(run)).evaluate(step)

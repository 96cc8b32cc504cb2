"""TPE against random draws at an equal budget, over several study seeds; prints, asserts nothing.

    python -m tests.bench.samplers [STUDY] [--seeds N] [--jobs N] [--set PATH=VALUE ...]

The best trial of each study is served again on replications that no study saw, on the efficiencies
of the base, which are the same for all, or where trials simulate their own memory as they do;
differences are paired by study seed.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from sweeps.analyse.figures import THROUGHPUT
from sweeps.analyse.statistics import relative_gap
from sweeps.plan.experiment import Task
from sweeps.run.progress import Progress
from sweeps.study.journal import RESULT
from sweeps.study.sampler import best
from sweeps.study.search import rates, run_study
from sweeps.study.study_run import StudyRun, Workers
from sweeps.study.study_spec import load_study, on_table

UNSEEN = 4
"""Replications that a best trial is served on."""


def search(study: str, sampler: str, seed: int, sets: list[str], jobs: int, out: Path) -> StudyRun:
    """One study without its finale."""
    own = [f"sampler.name={sampler}", f"sampler.seed={seed}", "finale=null"]
    loaded = load_study(study, [*sets, *own])
    quiet = Progress(terminal=False)
    return run_study(loaded, out / f"{sampler}-{seed}", False, Workers(jobs), quiet)


def unseen(run: StudyRun) -> float:
    """Mean throughput of a study's best trial on replications after its own."""
    found = best(run.study, run.told())
    assert found is not None
    experiment = run.study.experiment(found.user_attrs[RESULT]["overrides"])
    if run.study.spec.memory == "table":
        experiment = on_table(experiment, run.journal.note("efficiency of batch 0")["efficiency"])
    first = experiment.replications + 1
    offered = rates(run, {}, range(first, first + UNSEEN))
    tasks = [Task(experiment, r, rate) for r, rate in offered.items()]
    return float(np.mean([o.value[THROUGHPUT] for o in run.workers.outcomes(tasks)]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("study", nargs="?", default="odma")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], dest="sets")
    given = parser.parse_args()
    found: dict[str, list[float]] = {"tpe": [], "random": []}
    seen: dict[str, list[float]] = {"tpe": [], "random": []}
    draws: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, given.seeds + 1):
            for sampler, values in found.items():
                run = search(given.study, sampler, seed, given.sets, given.jobs, Path(folder))
                values.append(unseen(run))
                top = best(run.study, run.told())
                assert top is not None
                seen[sampler].append(float(top.values[0]))
                if sampler == "random":
                    draws += [t.value for t in run.told() if t.state.name == "COMPLETE"]
            words = (f"{name} {seen[name][-1]:.1f} {found[name][-1]:.1f}" for name in found)
            print(seed, *words, flush=True)
    for where, each in (("where they searched", seen), ("on unseen replications", found)):
        gap = relative_gap(each["tpe"], each["random"])
        print(f"tpe over random {where}: {gap.mean:+.2%} ({gap.low:+.2%} to {gap.high:+.2%})")
    shares = (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)
    values = np.quantile(draws, shares)
    points = ", ".join(f"{p:.0%} {v:.1f}" for p, v in zip(shares, values, strict=True))
    print(f"quantiles of {len(draws)} random trials: {points}")


if __name__ == "__main__":
    main()

"""What a study found, in sentences and a table; terminal and Markdown alike."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from sweeps.figures import PHASES
from sweeps.finale import Contender, Finale, limit
from sweeps.journal import RESULT
from sweeps.sampler import broken, front, ranking
from sweeps.statistics import Interval
from sweeps.store import to_yaml_flow, write_atomically
from sweeps.study_run import StudyRun

REPORT = "report.md"
_SHARES = {
    "utilization": "used of what is reserved", "batch": "requests at once",
    "policy.migration_rate": "migration rate", "preemptions": "preemptions",
    "kv_gbps": "KV GB/s",
}  # fmt: skip


def report_study(run: StudyRun) -> str:
    """Write `report.md` and return its text."""
    text = "\n".join(_lines(run, run.finale)) + "\n"
    write_atomically(run.directory.path / REPORT, text)
    return text


def _lines(run: StudyRun, finale: Finale | None) -> Iterator[str]:
    spec, told = run.study.spec, run.told()
    failed = sum(trial.state.name == "FAIL" for trial in told)
    unable = sum(trial.state.name == "PRUNED" for trial in told)
    kept = [trial for trial in ranking(run.study, told) if not broken(trial)]
    yield f"# {spec.name}\n"
    yield f"{spec.question or spec.summary}\n"
    yield (
        f"{len(told)} trials by {spec.sampler.name} (seed {spec.sampler.seed}, batches of "
        f"{spec.batch}), {failed} failed, {unable} cannot serve every request, "
        f"{len(told) - failed - unable - len(kept)} break a constraint.\n"
    )
    if not kept:
        yield "No trial keeps the constraints: there is no best."
        return
    if len(spec.objectives) > 1:
        yield from _front(run)
    if finale is None:
        yield from _without_finale(run, kept[0])
        return
    yield from _gains(run, finale)
    yield from _settings(finale.best)
    yield from _limit(run, finale.best)
    yield from _table(run, finale)


def _without_finale(run: StudyRun, best: Any) -> Iterator[str]:
    values = ", ".join(
        f"{objective.metric} {value:,.4g}"
        for objective, value in zip(run.study.spec.objectives, best.values, strict=True)
    )
    yield f"Best: trial {best.number}, {values} on the replications that it was searched on.\n"
    yield from _settings(Contender("", best.user_attrs[RESULT]["overrides"]))


def _front(run: StudyRun) -> Iterator[str]:
    names = [objective.metric for objective in run.study.spec.objectives]
    yield "Trials that no other beats in all objectives:\n"
    yield "| trial | " + " | ".join(names) + " |"
    yield "|---" + "|---:" * len(names) + "|"
    for trial in sorted(front(run.study, run.told()), key=lambda t: t.values):
        yield f"| {trial.number} | " + " | ".join(f"{v:,.4g}" for v in trial.values) + " |"
    yield ""


def _gains(run: StudyRun, finale: Finale) -> Iterator[str]:
    metric = run.study.spec.objectives[0].metric
    yield (
        f"On {len(finale.judging)} replications that the search never saw, with simulated memory, "
        f"{finale.best.name} has {metric} {finale.best.mean(metric, finale.judging):,.1f}:\n"
    )
    for other in finale.others:
        found = finale.gain(other, metric)
        unsure = "" if found.sign else ", which may be nothing"
        yield f"- against {other.name}: {_percent(found)}{unsure}"
    for name in run.study.spec.ceilings:
        ceiling = next(c for c in finale.others if c.name == name)
        share = finale.closed(ceiling, metric)
        closed = f"{name} is not above base: there is no gap" if share is None else (
            f"{_percent(share)} of the gap from base to {name} closed"
        )  # fmt: skip
        yield f"- {closed}"
    yield ""


def _settings(best: Contender) -> Iterator[str]:
    yield "What it has instead of the base:\n"
    for path, value in best.overrides.items():
        if isinstance(value, list):
            value = [round(item, 3) if isinstance(item, float) else item for item in value]
        yield f"- {path}: {to_yaml_flow(value)}"
    yield ""


def _limit(run: StudyRun, best: Contender) -> Iterator[str]:
    found = limit(run.study, best.overrides)
    if found is None:
        return
    levels = ", ".join(f"{level:.3f}" for level in found.best.levels)
    yield (
        f"Were every length known, {len(found.best.bounds)} buckets would leave at least "
        f"{found.best.unused:.1%} of what they reserve unused over time (bounds "
        f"{', '.join(map(str, found.best.bounds))}; levels {levels}; exact). The quantiles of "
        f"{best.name} leave {found.chosen:.1%}, those of the base {found.base:.1%}.\n"
    )


def _table(run: StudyRun, finale: Finale) -> Iterator[str]:
    metric = run.study.spec.objectives[0].metric
    yield "| | " + " | ".join([metric, *_SHARES.values(), *(f"{p} %" for p in PHASES)]) + " |"
    yield "|---" + "|---:" * (1 + len(_SHARES) + len(PHASES)) + "|"
    for contender in [finale.best, *finale.others]:
        cells = [_cell(contender, name, finale.judging) for name in (metric, *_SHARES)]
        cells += [_cell(contender, f"phase_share.{p}", finale.judging, 100) for p in PHASES]
        yield f"| {contender.name} | " + " | ".join(cells) + " |"
    if len(finale.tried) > 1:
        yield f"\nChosen among (replications {finale.choosing.start} to {finale.choosing[-1]}):"
        words = (f"{c.name} {c.mean(metric, finale.choosing):,.1f}" for c in finale.tried)
        yield ", ".join(words) + "."


def _cell(contender: Contender, metric: str, among: range, scale: float = 1.0) -> str:
    if any(contender.metrics[r].get(metric) is None for r in among):
        return "–"
    mean = scale * contender.mean(metric, among)
    return f"{mean:,.0f}" if abs(mean) >= 1000 else f"{mean:,.3g}"


def _percent(found: Interval) -> str:
    if not math.isfinite(found.half):
        return f"{found.mean:+.1%}"
    return f"{found.mean:+.1%} ({found.low:+.1%} to {found.high:+.1%})"

"""A few requests of every kind of point, before anything is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from hwmodel.description.description import DescriptionError, Document, KeyPath, Mark, nearest
from hwmodel.kernel.jit import KEPT
from policies.serving.plugins import LOADED
from sweeps.analyse.label import title
from sweeps.analyse.rows import flat, is_number
from sweeps.plan.experiment import Described, Task, measure
from sweeps.plan.sweep_spec import Point
from sweeps.run.executor import execute
from sweeps.run.outcome import attempt, repeated
from sweeps.run.progress import Progress
from sweeps.run.task_limits import TaskLimits


def rehearse(
    points: Sequence[Point], document: Document | None, progress: Progress, jobs: int = 1,
    unfit: dict[int, str] | None = None,
) -> list[str]:  # fmt: skip
    """A few requests of every kind of point, here: compiles the kernels before workers fork.

    Simulated memory is tried on the first point of each kernel of channels; it costs seconds. Where
    there are several and compiled kernels are kept, `jobs` workers compile them side by side first.
    Returns the metrics that are numbers there. Raises DescriptionError: what cannot work at all is
    said before anything is measured, with the first point that it holds for, and its place in the
    run's `document`. unfit: takes why a point does not fit, by its number, where others do.
    """
    metrics: dict[str, Any] = {}
    tried: list[Described] = []
    while left := [point for point in points if not unfit or point.index not in unfit]:
        try:
            several = left[0].experiment.rehearsals([point.experiment for point in left])
        except DescriptionError as error:
            raise _of_point(left, document, error, None) from None
        small = [each for each in several if each not in tried]
        if not small:
            break
        tried += small
        metrics |= _rehearsed(small, points, document, progress, jobs, unfit)
    return [name for name, value in metrics.items() if is_number(value)]


def _rehearsed(
    small: Sequence[Described], points: Sequence[Point], document: Document | None,
    progress: Progress, jobs: int, unfit: dict[int, str] | None,
) -> dict[str, Any]:  # fmt: skip
    """The metrics of these rehearsals of points; otherwise as `rehearse`."""
    metrics: dict[str, Any] = {}
    unfitting: list[tuple[str, Described]] = []
    with progress.stage("rehearsal", len(small)) as done:
        simulated = [each for each in small if each.kernel is not None]
        if KEPT and jobs > 1 and len({each.kernel for each in simulated}) > 1:
            tasks = [Task(each, 1, None) for each in simulated]
            with closing(execute(measure, tasks, jobs, limits=TaskLimits())) as tried:
                for _ in tried:  # what fails there fails below
                    pass
        for experiment in small:
            task = Task(experiment, 1, None)
            outcome = attempt(measure, 0, task)
            if LOADED and experiment.kernel is None:
                outcome = repeated(measure, task, outcome)
            if outcome.misfit and unfit is not None:
                mine = [point.index for point in points if _rehearses(point, experiment)]
                unfit |= dict.fromkeys(mine, outcome.error or "")
                unfitting.append((outcome.error or "", experiment))
            elif outcome.at_fault:
                refused = DescriptionError(outcome.error or "")
                raise _of_point(points, document, refused, experiment)
            if unfitting and unfit and len(unfit) == len(points):
                why, first = unfitting[0]
                raise _of_point(points, document, DescriptionError(why), first)
            if outcome.error is None:
                metrics |= flat(outcome.value)
            done()
    return metrics


def _rehearses(point: Point, small: Described | None) -> bool:
    """Whether this is a rehearsal of a point, or, of None, whether it has none."""
    try:
        return small in point.experiment.rehearsals([point.experiment])
    except DescriptionError:
        return small is None


def refuse_unknown(metrics: Mapping[KeyPath, str], known: list[str], document: Document) -> None:
    """Raise DescriptionError for a metric that is asked for, by its place, and not among those that
    are `known`."""
    for place, metric in metrics.items():
        if metric not in known:
            hint = nearest(metric, known)
            raise document.error(f"no metric {metric!r} here; {hint}", place)


def _of_point(
    points: Sequence[Point], document: Document | None, error: DescriptionError,
    small: Described | None,
) -> DescriptionError:  # fmt: skip
    """The error with the first point whose rehearsal it is, and where its variant stands."""
    point = next((each for each in points if _rehearses(each, small)), None)
    text = str(error)
    if point is not None and len(points) > 1:
        text = f"{title(point.overrides, point.control)}: {text}"
    if document is None:
        return DescriptionError(text)
    words = [] if point is None else [point.control, *map(str, point.overrides.values())]
    variants = document.get(("variants",)) or {}
    at = next((("variants", word) for word in words if word in variants), None)
    mark = Mark(document.file) if at is None else document.mark(at)
    return DescriptionError(text, mark.file, mark.line)

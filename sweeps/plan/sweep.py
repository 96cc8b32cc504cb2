"""A sweep as it is loaded: its YAML, overrides from outside, and its points in order."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hwmodel.description.description import DescriptionError, Document, Mark, Mistakes, nearest
from hwmodel.description.library import elsewhere, find, names
from hwmodel.description.yaml_reader import load, parse_assignment
from hwmodel.description.yaml_writer import plain
from sweeps.analyse.figures import REFERENCE
from sweeps.analyse.objective import OBJECTIVES
from sweeps.analyse.rows import Record
from sweeps.analyse.variants import ANALYTIC, CASE
from sweeps.plan.defaults import with_defaults
from sweeps.plan.layout import (
    ALIASES,
    absolute_paths,
    experiment_with,
    lay_out,
    refuse_unknown_path,
)
from sweeps.plan.measures import MEASURES, experiment_of
from sweeps.plan.place import in_variant
from sweeps.plan.plugged import require
from sweeps.plan.precision import written_out
from sweeps.plan.rules import RULES, spec_of, sweep_specs
from sweeps.plan.sweep_spec import Point, Sweep, SweepSpec

Given = str | Path | Mapping[str, Any]
"""A shipped name, a path, or what the YAML file would hold."""


def load_sweep(given: Given, overrides: Iterable[str] = ()) -> Sweep:
    """Read a sweep (its name, path or content), apply `--set` assignments, and lay out its points.
    Raises DescriptionError."""
    document = document_of("sweeps", given, "sweep")
    try:
        return _loaded(document, list(overrides))
    except DescriptionError as error:
        raise in_variant(error, document) from None


def _loaded(document: Document, assignments: Sequence[str]) -> Sweep:
    spec = _built(document)
    # What a file wants is of its own requests: fewer of them, with --set, do not add replications.
    if not any(each.startswith("precision=") for each in assignments):
        written_out(document, spec.precision)
    for assignment in assignments:
        _assign(document, assignment)
    spec = _built(document)
    chosen = written_out(document, spec.precision)
    if any([chosen, absolute_paths(document, type(spec)), spec.complete(document)]):
        spec = _built(document)
    points = _points(spec, document, _lists(document))
    spec.refuse_unmeasured(points, document)
    sweep = Sweep(spec, document, points, _config(spec, document))
    return sweep.with_points(further(sweep, []))


def _built(document: Document) -> SweepSpec:
    """The spec of its rule. Raises DescriptionError."""
    data = document.data
    if (rule := data.get("rule")) is not None and rule not in RULES:
        raise document.error(_unknown("rule", rule, RULES), ("rule",))
    if (measure := data.get("measure")) is not None and measure not in MEASURES:
        raise document.error(_unknown("measure", measure, MEASURES), ("measure",))
    if isinstance(objective := data.get("objective"), str) and objective not in OBJECTIVES:
        hint = nearest(objective, list(OBJECTIVES))
        raise document.error(f"no objective {objective!r}; {hint}", ("objective",))
    spec = spec_of(data)
    for name, other in RULES.items():
        if key := next((k for k in data if k in own_keys(other) - own_keys(spec)), None):
            raise document.error(f"belongs to rule: {name}", (key,))
    return document.build(spec)


def _unknown(what: str, given: object, known: Iterable[str]) -> str:
    hint = f"{nearest(str(given), list(known))} (--plugin FILE.py brings your own)"
    return f"expected a {what}; got {given!r}; {hint}"


def own_keys(spec: type[SweepSpec]) -> set[str]:
    """The keys that a rule adds to those of any sweep."""
    return set(spec.model_fields) - set(SweepSpec.model_fields)


def document_of(folder: str, given: Given, kind: str) -> Document:
    """A description of one folder of the library: shipped, a file, or a mapping of what the file
    would hold. Raises DescriptionError where it is of another kind."""
    if isinstance(given, Mapping):
        document = Document(copy.deepcopy(plain(dict(given))), "mapping")
    else:
        document = load(find(folder, str(given)))
    if document.data.get("kind") != kind:
        raise document.error(f"expected kind: {kind}; got {document.data.get('kind')!r}", ("kind",))
    if "resolved" in document.data:
        made = document.get(("resolved", "plugins"))
        require(made if isinstance(made, dict) else None, document.file)
    return document


def planned_kind(given: Given) -> str:
    """`sweep` or `study`: what a description is that a run may begin with. Raises DescriptionError
    where it is neither."""
    if isinstance(given, Mapping):
        document = Document(dict(given), "mapping")
    else:
        name = str(given)
        known = dict.fromkeys(names("sweeps"), "sweep")
        known |= dict.fromkeys(names("studies"), "study")
        if name in known:
            return known[name]
        if not ("/" in name or name.endswith((".yaml", ".yml"))):
            hint = elsewhere(name) or nearest(name, list(known))
            raise DescriptionError(f"no shipped sweep or study {name!r}; {hint}")
        document = load(find("sweeps", name))
    kind = document.data.get("kind")
    if kind not in ("sweep", "study"):
        raise document.error(f"expected kind: sweep or study; got {kind!r}", ("kind",))
    return str(kind)


def _refuse_below_axis(document: Document, path: str, mark: Mark, at: bool) -> None:
    """Raise DescriptionError where an axis replaces what is set below it, or `at` it."""
    for axis in document.data["axes"]:
        if path.startswith(f"{axis}.") or (at and path == axis):
            why = f"{axis} is an axis, whose values replace it; set it there: axes.{axis}=[...]"
            raise DescriptionError(why, mark.file, None, path)


def _assign(document: Document, assignment: str) -> None:
    path, value = parse_assignment(assignment)
    keys = tuple(str(part) for part in path)
    mark = Mark(f"--set {assignment}")
    if keys[0] in ("axes", "variants"):
        depth = 1 if keys[0] == "axes" else 4 if keys[2:3] == ("of",) else 3
        inner = (".".join(keys[depth:]),) if keys[depth:] else ()
        document.put((*keys[:depth], *inner), value, mark)
        return
    if any(keys[0] in spec.model_fields for spec in sweep_specs()):
        if keys[0] == "base":
            _refuse_below_axis(document, ".".join(keys[1:]), mark, at=True)
        document.put(path, value, mark)
        return
    experiment = experiment_of(document.data)
    short = {**ALIASES, "policy": experiment.policy_path}
    keys = short.get(keys[0], (keys[0],)) + keys[1:]
    refuse_unknown_path(experiment, keys, mark)
    axis = ".".join(keys)
    _refuse_below_axis(document, axis, mark, at=False)
    if axis in document.data["axes"]:
        document.put(("axes", axis), value if isinstance(value, list) else [value], mark)
    else:
        document.put(("base", *keys), value, mark)
        for length in range(2, len(keys) + 1):
            document.marks.setdefault(("base", *keys[: length - 1]), mark)


def _lists(document: Document) -> set[str]:
    """Paths of the base that `--set` gave a list of which each value was perhaps meant."""
    at = [path for path, mark in document.marks.items() if (mark.file or "").startswith("--set ")]
    values = {".".join(map(str, path[1:])): document.get(path) for path in at if path[0] == "base"}
    return {path for path, value in values.items() if isinstance(value, list)}


def _points(spec: SweepSpec, document: Document, lists: set[str]) -> list[Point]:
    points: list[Point] = []
    mistakes = Mistakes()
    for control in ("", *spec.with_role("control")):
        for layer in spec.layers(document):
            with mistakes.met():
                points += lay_out(spec, document, layer, len(points), control)
    for found in mistakes:
        if found.path in lists:
            more = f"{found.message}; to compare several: --set axes.{found.path}=[...]"
            raise DescriptionError(more, found.file, found.line, found.path)
    mistakes.answer()
    return [*points, *_references(spec, document, points)]


def _references(spec: SweepSpec, document: Document, points: list[Point]) -> list[Point]:
    """Beside the first competitor of each combination of the other axes."""
    found: list[Point] = []
    main = [point for point in points if not point.control]
    analytic = spec.with_role("control").get(ANALYTIC)
    control = [] if analytic is None else analytic.changes(document, ANALYTIC)
    for name, reference in spec.with_role("reference").items():
        for point in main:
            others = {axis: v for axis, v in point.overrides.items() if axis != spec.compare}
            if point.overrides.get(spec.compare) != spec.axes[spec.compare][0]:
                continue
            changes = [
                *spec.case_changes(document, others.get(CASE)),
                *((path, v, Mark(document.file)) for path, v in others.items() if path != CASE),
                *control,
                *reference.changes(document, name),
            ]
            built = experiment_with(document, spec.experiment, changes)
            chosen = {**others, spec.compare: name}
            found.append(Point(len(points) + len(found), chosen, REFERENCE, built))
    return found


def further(sweep: Sweep, records: Iterable[Record]) -> list[Point]:
    """The points that the results of those there are ask for; none where nothing is sought, or all
    is found. Of one that does not fit, `UnfitPoint.result` stands among the results."""
    known = [record for record in records if record["point"] < len(sweep.points)]
    replications = sweep.points[0].experiment.replications
    points: list[Point] = []
    for layer in sweep.spec.next_layers(known, replications, sweep.document):
        points += lay_out(sweep.spec, sweep.document, layer, len(sweep.points) + len(points))
    return points


def _config(spec: SweepSpec, document: Document) -> dict[str, Any]:
    """The sweep with every default written out."""
    data = {key: value for key, value in document.data.items() if key != "resolved"}
    base = with_defaults(spec.experiment, data["base"])
    for path in data["axes"]:
        _without(base, path.split("."))
    return copy.deepcopy({**data, "base": base})


def _without(data: dict[str, Any], keys: list[str]) -> None:
    for key in keys[:-1]:
        data = data.get(key, {})
        if not isinstance(data, dict):
            return
    data.pop(keys[-1], None)

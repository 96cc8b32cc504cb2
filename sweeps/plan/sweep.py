"""A sweep: a base experiment, axes that are crossed, controls beside them, and what is compared.

What other kinds of run add is in specs of their own, which are built on `SweepSpec` or `RunSpec`.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, model_validator

from hwmodel.description.description import (
    DescriptionError,
    Document,
    KeyPath,
    Mark,
    Strict,
    nearest,
)
from hwmodel.description.library import find
from hwmodel.description.yaml_reader import load, loads, parse_assignment
from hwmodel.description.yaml_writer import plain, to_yaml
from hwmodel.specs.accelerator import AcceleratorSpec
from hwmodel.specs.memory_spec import MemorySpec
from sweeps.analyse.figures import REFERENCE
from sweeps.analyse.label import NAMED, label, named
from sweeps.analyse.rows import Record
from sweeps.plan.defaults import with_defaults
from sweeps.plan.experiment import Described, device_of
from sweeps.plan.kinds import DESIGNS, MEASURES, designs, kind_of, measured
from sweeps.plan.place import Override
from sweeps.plan.variant import Change, Variant

if TYPE_CHECKING:
    Measure = str
else:
    Measure = Literal[tuple(MEASURES)]

ALIASES = {"fidelity": ("serving", "memory", "fidelity")}
"""Short names that `--set` takes for paths of the experiment, beside `policy`."""
DESCRIBED = {
    "device": "accelerators", "model": "models", "workload": "workloads",
    "serving.predictor.table": "predictors", "serving.predictor.model": "predictors",
    "serving.weights": "formats", "serving.kv": "formats",
}  # fmt: skip
"""Keys of an experiment that name a description, and the folder of the library they name it in."""
CASE = "case"
"""The key of a result's overrides that names its case."""
ANALYTIC = "analytic"
"""The control whose memory has no banks."""
_DATA = (".csv", ".jsonl", ".gz", ".json")
_ENGINE = ("serving", "engine")
_FILES = (".yaml", ".yml", *_DATA)
Given = str | Path | Mapping[str, Any]
"""A shipped name, a path, or what the YAML file would hold."""
_DEVICE_SPECS = (AcceleratorSpec, MemorySpec)
_DEVICE_KEYS = {key for spec in _DEVICE_SPECS for key in spec.model_fields} - {
    "kind", "name", "summary", "sources",
}  # fmt: skip


class RunSpec(Strict):
    """What every description of a run has."""

    kind: str
    name: str
    summary: str
    question: str = ""
    base: dict[str, Any]
    """An experiment; the rest of the description may supply what it leaves out."""
    resolved: dict[str, Any] | None = None
    """What the names meant when the run was recorded; a change since then is refused."""

    @classmethod
    def overrides(cls, data: Mapping[str, Any]) -> Iterator[Override]:
        """Where a description gives paths of its experiment, beside its base."""
        for group in named_overrides(cls):
            for name, overrides in data.get(group, {}).items():
                for path in overrides:
                    yield Override(path, (group, name, path), [(group, name, path)])

    def recorded(self, points: Sequence[Point]) -> dict[str, Any]:
        """What the provenance of such a run has beside that of any."""
        return {}


class SweepSpec(RunSpec):
    """One sweep, as `yaml/sweeps/*.yaml` describes it."""

    kind: Literal["sweep"]
    measure: Measure = next(iter(MEASURES))
    """What is measured at each point: what is served, how KV is read, a paper's table."""
    axes: dict[str, list[Any]]
    """Dotted path of the experiment -> values; the first axis varies slowest."""
    cases: dict[str, dict[str, Any]] = {}
    """Name -> overrides that go together, as a device and what it holds: crossed with the axes as
    the values of one more."""
    controls: dict[str, dict[str, Any]] = {}
    """Name -> overrides: the same points again, beside the main ones."""
    references: dict[str, dict[str, Any]] = {}
    """Name -> overrides: what the competitors of each combination are held against, once each.
    They do not compete or set the load, and run in the `analytic` control where there is one."""
    compare: str
    """The axis whose values compete, within each combination of the others."""

    @model_validator(mode="after")
    def _consistent(self) -> SweepSpec:
        for path, values in self.axes.items():
            if not values:
                raise ValueError(f"axes.{path}: expected at least one value")
            texts = [json.dumps(value, sort_keys=True, default=str) for value in values]
            if len(set(texts)) < len(texts):
                raise ValueError(f"axes.{path}: a value is there twice")
            names = [named(path, value) for value in values]
            if path in NAMED and len(set(names)) < len(names):
                raise ValueError(f"axes.{path}: a name is there twice")
        if self.compare not in self.axes:
            raise ValueError(f"compare: expected an axis; {nearest(self.compare, list(self.axes))}")
        self._refuse_references()
        self.refuse_inconsistent()
        return self

    def _refuse_references(self) -> None:
        if type(self) is not SweepSpec and (self.references or self.cases):
            key = "references" if self.references else "cases"
            raise ValueError(f"{key}: only in a sweep without a design")
        for name, overrides in self.cases.items():
            if twice := next((path for path in overrides if path in self.axes), None):
                raise ValueError(f"cases.{name}: {twice} is an axis already")
        for name, overrides in self.references.items():
            if name in self.competitors:
                raise ValueError(f"references.{name}: a competitor has this name")
            if not any(f"{path}.".startswith(f"{self.compare}.") for path in overrides):
                raise ValueError(f"references.{name}: expected a value of {self.compare}")

    def refuse_inconsistent(self) -> None:
        """Raise ValueError, the place at the head of its message, for what does not fit."""

    def refuse_without_rate(self) -> None:
        """Raise ValueError where competitors are not compared by a rate."""
        if self.experiment.rate is None:
            raise ValueError(f"measure: {self.measure} has no rate to compare by")

    @property
    def competitors(self) -> list[str]:
        """Labels of the values that compete."""
        return [label(value) for value in self.axes[self.compare]]

    @property
    def experiment(self) -> type[Described]:
        """What each point is."""
        return experiment_of(self.model_dump(include={"measure"}))

    @classmethod
    def overrides(cls, data: Mapping[str, Any]) -> Iterator[Override]:
        for path, values in data["axes"].items():
            yield Override(path, ("axes", path), [("axes", path, i) for i in range(len(values))])
        yield from super().overrides(data)

    @classmethod
    def complete(cls, document: Document) -> None:
        """Replace short forms by what they stand for. Raises DescriptionError."""

    def variants(self, document: Document) -> list[Variant]:
        """What each control is laid out with."""
        if not self.cases:
            return [Variant({}, [])]
        return [Variant({CASE: name}, self.case_changes(document, name)) for name in self.cases]

    def case_changes(self, document: Document, name: str | None) -> list[Change]:
        """What a case is laid out with; nothing without one."""
        if name is None:
            return []
        return [
            (path, value, document.mark(("cases", name, path)))
            for path, value in self.cases[name].items()
        ]

    def recorded(self, points: Sequence[Point]) -> dict[str, Any]:
        """Peak and capacity of the device of each case."""
        devices = {
            p.overrides[CASE]: device_of(p.experiment) for p in points if CASE in p.overrides
        }
        found = {
            name: {"device": d.name, "peak_gbps": d.peak_gbps, "capacity_bytes": d.capacity_bytes}
            for name, d in devices.items()
        }
        return {"hardware": found} if found else {}

    def asked(
        self, records: Iterable[Record], replications: int, document: Document
    ) -> list[Variant]:
        """What the results that are there ask for next."""
        return []


def named_overrides(spec: type[BaseModel]) -> list[str]:
    """The fields that hold overrides by name."""
    wanted = dict[str, dict[str, Any]]
    return [key for key, info in spec.model_fields.items() if info.annotation == wanted]


def sweep_specs() -> list[type[SweepSpec]]:
    """What describes a sweep: its own spec, and those of the designs."""
    return [SweepSpec, *(design.spec for design in designs())]


def experiment_of(data: Mapping[str, Any]) -> type[Described]:
    """What each point of a sweep is; of the first kind where it measures none that is known."""
    found: type[Described] = measured(data).experiment
    return found


@dataclass(frozen=True)
class Point:
    """One combination of axis values, in one control (or in none: '')."""

    index: int
    overrides: dict[str, Any]
    control: str
    """A reference has one of its own, `figures.REFERENCE`."""
    experiment: Described


@dataclass(frozen=True)
class Planned:
    """A description of a run with its points, and the config that says it all again."""

    spec: RunSpec
    document: Document
    points: list[Point] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Sweep(Planned):
    """A sweep with its points."""

    spec: SweepSpec


def load_sweep(given: Given, overrides: Iterable[str] = ()) -> Sweep:
    """Read a sweep (its name, path or content), apply `--set` assignments, and lay out its points.
    Raises DescriptionError."""
    document = document_of("sweeps", given, "sweep")
    _built(document)
    for assignment in overrides:
        _assign(document, assignment)
    design = type(_built(document))
    absolute_paths(document, design)
    design.complete(document)
    spec = _built(document)
    sweep = Sweep(spec, document, _points(spec, document))
    sweep.points.extend(further(sweep, []))
    sweep.config.update(_config(sweep))
    return sweep


def _built(document: Document) -> SweepSpec:
    """The spec of its kind; a design that is given nothing is not asked for."""
    asked = [key for key in DESIGNS if document.data.get(key)]
    if len(asked) > 1:
        raise document.error(f"{asked[0]} does not go with {asked[1]}", (asked[1],))
    data = {key: value for key, value in document.data.items() if value or key not in DESIGNS}
    found: SweepSpec = replace(document, data=data).build(kind_of(data).spec)
    return found


def document_of(folder: str, given: Given, kind: str) -> Document:
    """A description of one folder of the library: shipped, a file, or a mapping of what the file
    would hold. Raises DescriptionError where it is of another kind."""
    if isinstance(given, Mapping):
        document = loads(to_yaml(plain(dict(given))), "mapping")
        document.marks = {path: Mark(document.file) for path in document.marks}
    else:
        document = load(find(folder, str(given)))
    if document.data.get("kind") != kind:
        raise document.error(f"expected kind: {kind}; got {document.data.get('kind')!r}", ("kind",))
    return document


def _assign(document: Document, assignment: str) -> None:
    path, value = parse_assignment(assignment)
    keys = tuple(str(part) for part in path)
    mark = Mark(f"--set {assignment}")
    specs = sweep_specs()
    nested = {key for spec in specs for key in named_overrides(spec)}
    if keys[0] == "axes" or keys[0] in nested:
        depth = 2 if keys[0] in nested else 1
        document.put(
            (*keys[:depth], *([".".join(keys[depth:])] if keys[depth:] else [])), value, mark
        )
        return
    if any(keys[0] in spec.model_fields for spec in specs):
        document.put(path, value, mark)
        return
    experiment = experiment_of(document.data)
    short = {**ALIASES, "policy": experiment.policy_path}
    keys = short.get(keys[0], (keys[0],)) + keys[1:]
    if keys[0] not in experiment.model_fields:
        raise DescriptionError(suggestion(experiment, keys), mark.file, None, ".".join(keys))
    axis = ".".join(keys)
    if axis in document.data["axes"]:
        document.put(("axes", axis), value if isinstance(value, list) else [value], mark)
    else:
        document.put(("base", *keys), value, mark)
        for length in range(2, len(keys) + 1):
            document.marks.setdefault(("base", *keys[: length - 1]), mark)


def suggestion(experiment: type[Described], keys: tuple[str, ...]) -> str:
    """What to say of a path whose first key the experiment does not have."""
    if keys[0] in _DEVICE_KEYS:
        return f"not a key of a sweep; did you mean device_set.{'.'.join(keys)}?"
    for spec, prefix in ((experiment, ""), *((s, "device_set.") for s in _DEVICE_SPECS)):
        if (place := _holder(spec, keys[0])) is not None:
            return f"unknown key; did you mean {prefix}{place}.{'.'.join(keys)}?"
    specs = (experiment, *sweep_specs())
    known = {*(key for spec in specs for key in spec.model_fields), *ALIASES, "policy"}
    known -= {"kind", "resolved"}
    return f"unknown key; {nearest(keys[0], sorted(known))}"


def _holder(spec: type[BaseModel], key: str) -> str | None:
    """The dotted path of the group inside a spec that has this key, if one has."""
    for name, info in spec.model_fields.items():
        for inner in (type(info.default), info.annotation):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                if key in inner.model_fields:
                    return name
                if (deeper := _holder(inner, key)) is not None:
                    return f"{name}.{deeper}"
    return None


def absolute_paths(document: Document, spec: type[RunSpec]) -> None:
    """Paths of descriptions, tried as they stand and then beside the file, become absolute."""
    given: list[tuple[KeyPath, str]] = [(("base",), "")]
    given += [(at, f"{each.path}.") for each in spec.overrides(document.data) for at in each.values]
    for key, folder in DESCRIBED.items():
        for at, path in given:
            if not f"{key}.".startswith(path):
                continue
            place = (*at, *f"{key}.".removeprefix(path).split(".")[:-1])
            value = document.get(place)
            if isinstance(value, str) and ("/" in value or value.endswith(_FILES)):
                mark = document.mark(place)
                document.put(place, _absolute(value, folder, document.file), mark)


def _absolute(value: str, kind: str, sweep_file: str) -> str:
    if value.endswith(_DATA):
        beside = Path(sweep_file).parent / value
        for path in (Path(value), beside):
            if path.is_file():
                return str(path.absolute())
        raise DescriptionError("no such file", value)
    return str(find(kind, value, sweep_file).absolute())


def _points(spec: SweepSpec, document: Document) -> list[Point]:
    points: list[Point] = []
    for control in ("", *spec.controls):
        for variant in spec.variants(document):
            points += lay_out(spec, document, variant, len(points), control)
    return [*points, *_references(spec, document, points)]


def _references(spec: SweepSpec, document: Document, points: list[Point]) -> list[Point]:
    """Beside the first competitor of each combination of the other axes."""
    found: list[Point] = []
    main = [point for point in points if not point.control]
    for name, overrides in spec.references.items():
        for point in main:
            others = {axis: v for axis, v in point.overrides.items() if axis != spec.compare}
            if point.overrides.get(spec.compare) != spec.axes[spec.compare][0]:
                continue
            control = spec.controls.get(ANALYTIC, {})
            changes = [
                *spec.case_changes(document, others.get(CASE)),
                *((path, v, Mark(document.file)) for path, v in others.items() if path != CASE),
                *((p, v, document.mark(("controls", ANALYTIC, p))) for p, v in control.items()),
                *((p, v, document.mark(("references", name, p))) for p, v in overrides.items()),
            ]
            built = experiment_with(document, spec.experiment, changes)
            chosen = {**others, spec.compare: name}
            found.append(Point(len(points) + len(found), chosen, REFERENCE, built))
    return found


def further(sweep: Sweep, records: Iterable[Record]) -> list[Point]:
    """The points that the results of those there are ask for; none where nothing is sought, or all
    is found."""
    known = [record for record in records if record["point"] < len(sweep.points)]
    replications = sweep.points[0].experiment.replications
    points: list[Point] = []
    for variant in sweep.spec.asked(known, replications, sweep.document):
        points += lay_out(sweep.spec, sweep.document, variant, len(sweep.points) + len(points))
    return points


def lay_out(
    spec: SweepSpec, document: Document, variant: Variant, first: int, control: str = ""
) -> list[Point]:
    """The points of a variant: it crossed with the axes, numbered from `first` on."""
    points: list[Point] = []
    experiment = spec.experiment
    for chosen in itertools.product(*(range(len(values)) for values in spec.axes.values())):
        overrides = dict(variant.head)
        changes: list[Change] = []
        for (axis, values), i in zip(spec.axes.items(), chosen, strict=True):
            overrides[axis] = values[i]
            changes.append((axis, values[i], document.mark(("axes", axis, i))))
        within = variant.within or {}
        if any(overrides[axis] != value for axis, value in within.items()):
            continue
        if variant.competitor in (None, label(overrides[spec.compare])):
            changes += variant.changes
        for path, value in spec.controls.get(control, {}).items():
            changes.append((path, value, document.mark(("controls", control, path))))
        built = experiment_with(document, experiment, changes)
        points.append(Point(first + len(points), overrides, control, built))
    return points


def experiment_with(
    document: Document, spec: type[Described], changes: Iterable[Change]
) -> Described:
    """The `base` of a document, changed at these paths in turn. Raises DescriptionError."""
    marks = {path[1:]: mark for path, mark in document.marks.items() if path[:1] == ("base",)}
    experiment = Document(copy.deepcopy(document.data["base"]), document.file, marks)
    for change in changes:
        _put(spec, experiment, *change)
    _fill(spec, experiment)
    return experiment.build(spec)


def _fill(spec: type[Described], experiment: Document) -> None:
    """`policy: paged` is short for `policy: {name: paged}`, as are `engine: v0` and `attention:
    top_k`; the model is given once."""
    _fill_names(spec, experiment)
    if "serving" not in spec.model_fields:
        return
    if experiment.get(("serving", "model")) is not None:
        raise experiment.error("give the model as `model`, beside serving", ("serving", "model"))
    if (model := experiment.get(("model",))) is not None:
        experiment.put(("serving", "model"), model, experiment.mark(("model",)))


def _fill_names(spec: type[Described], experiment: Document) -> None:
    for place in _places(spec):
        if isinstance(name := experiment.get(place), str):
            experiment.put((*place, "name"), name, experiment.mark(place))


def _places(spec: type[Described]) -> tuple[tuple[str, ...], ...]:
    """Where a name stands for options."""
    return spec.policy_path, _ENGINE, (*spec.policy_path[:-1], "attention")


def _put(spec: type[Described], experiment: Document, path: str, value: Any, mark: Mark) -> None:
    keys = tuple(path.split("."))
    if keys[0] not in spec.model_fields:
        raise DescriptionError(suggestion(spec, keys), mark.file, mark.line, path)
    if any(keys[: len(place)] == place != keys for place in _places(spec)):
        _fill_names(spec, experiment)
    experiment.put(keys, copy.deepcopy(value), mark)


def _config(sweep: Sweep) -> dict[str, Any]:
    """The sweep with every default written out."""
    data = {key: value for key, value in sweep.document.data.items() if key != "resolved"}
    base = with_defaults(sweep.spec.experiment, data["base"])
    for path in data["axes"]:
        _without(base, path.split("."))
    return copy.deepcopy({**data, "base": base})


def _without(data: dict[str, Any], keys: list[str]) -> None:
    for key in keys[:-1]:
        data = data.get(key, {})
        if not isinstance(data, dict):
            return
    data.pop(keys[-1], None)

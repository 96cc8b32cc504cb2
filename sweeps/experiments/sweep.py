"""A sweep: a base experiment, axes that are crossed, controls beside them, and what is compared."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError, model_validator
from pydantic.fields import FieldInfo

from hwmodel.description.description import (
    DescriptionError,
    Document,
    KeyPath,
    Mark,
    Strict,
    find,
    load,
    loads,
    nearest,
    parse_assignment,
)
from hwmodel.description.units import (
    Bytes,
    BytesPerSecond,
    FlopsPerSecond,
    Milliwatts,
    Nanoseconds,
    Picojoules,
    PositiveBytes,
)
from hwmodel.specs.accelerator import AcceleratorSpec
from hwmodel.specs.memory_spec import MemorySpec
from sweeps.experiments import break_even, what_if
from sweeps.experiments.break_even import Evaluations, Parameter
from sweeps.experiments.experiment import Described
from sweeps.experiments.kinds import KINDS, Kind
from sweeps.experiments.variant import AS_DESCRIBED, Change, Variant
from sweeps.results.figures import RATES
from sweeps.results.store import Record, plain, to_yaml, to_yaml_flow

ALIASES = {"fidelity": ("serving", "memory", "fidelity")}
"""Short names that `--set` takes for paths of the experiment, beside `policy`."""
DESCRIBED = {
    "device": "accelerators", "model": "models", "workload": "workloads",
    "serving.predictor.table": "predictors", "serving.predictor.model": "predictors",
}  # fmt: skip
"""Keys of an experiment that name a description, and the folder of the library they name it in."""
NAMED = ("dataset", "assumption")
"""Axes whose values have names of their own, which tell them apart."""
_DATA = (".csv", ".jsonl", ".gz", ".json")
_FILES = (".yaml", ".yml", *_DATA)
_UNITS: tuple[tuple[Any, str, float], ...] = (
    (Nanoseconds, "ns", 1), (Bytes, "B", 1), (PositiveBytes, "B", 1), (Picojoules, "pJ", 1),
    (Milliwatts, "mW", 1), (BytesPerSecond, "MB/s", 1e6), (FlopsPerSecond, "GFLOPS", 1e9),
)  # fmt: skip
"""Field types of quantities, the unit they are written in, and its size in base units."""
Given = str | Path | Mapping[str, Any]
"""A shipped name, a path, or what the YAML file would hold."""
_DEVICE_SPECS = (AcceleratorSpec, MemorySpec)
_DEVICE_KEYS = {key for spec in _DEVICE_SPECS for key in spec.model_fields} - {
    "kind", "name", "summary", "sources",
}  # fmt: skip


class SweepSpec(Strict):
    """One sweep, as `yaml/sweeps/*.yaml` describes it."""

    kind: Literal["sweep"]
    name: str
    summary: str
    question: str = ""
    measure: Literal["serving", "kv_read", "odma_paper"] = "serving"
    """What kind of experiment it is: requests served, the KV of one batch read, or the ODMA paper's
    table."""
    base: dict[str, Any]
    """An experiment; axes may supply what it leaves out."""
    axes: dict[str, list[Any]]
    """Dotted path of the experiment -> values; the first axis varies slowest."""
    controls: dict[str, dict[str, Any]] = {}
    """Name -> overrides: the same points again, beside the main ones."""
    changes: dict[str, dict[str, Any]] = {}
    """Name -> overrides: what-ifs, each of which is crossed with the axes beside the base."""
    together: dict[str, list[str]] = {}
    """Name -> names of changes that are made at once."""
    break_even: dict[str, Parameter] = {}
    """Name -> a number, whose value is sought at which the answer changes."""
    compare: str
    """The axis whose values compete, within each combination of the others."""
    resolved: dict[str, Any] | None = None
    """What the names meant when the sweep was recorded; a change since then is refused."""

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
        what_if.refuse_inconsistent(self.changes, self.together, self.axes)
        break_even.refuse_inconsistent(self.break_even, self.axes, self.competitors)
        if self.break_even and (self.changes or self.controls):
            raise ValueError("break_even: does not go with changes or controls")
        if (self.break_even or self.changes) and self.measure not in RATES:
            raise ValueError(f"measure: {self.measure} has no rate to compare by")
        return self

    @property
    def competitors(self) -> list[str]:
        """Labels of the values that compete."""
        return [label(value) for value in self.axes[self.compare]]


@dataclass(frozen=True)
class Point:
    """One combination of axis values, in one control (or in none: '')."""

    index: int
    overrides: dict[str, Any]
    control: str
    experiment: Described


@dataclass(frozen=True)
class Sweep:
    """A sweep with its points, and the config that says it all again."""

    spec: SweepSpec
    document: Document
    points: list[Point] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)


def load_sweep(given: Given, overrides: Iterable[str] = ()) -> Sweep:
    """Read a sweep (its name, path or content), apply `--set` assignments, and lay out its points.
    Raises DescriptionError."""
    document = document_of("sweeps", given, SweepSpec)
    for assignment in overrides:
        _assign(document, assignment)
    absolute_paths(document)
    spec = document.build(SweepSpec)
    sweep = Sweep(spec, document, _points(spec, document))
    sweep.points.extend(further(sweep, []))
    sweep.config.update(_config(sweep))
    return sweep


def document_of(folder: str, given: Given, spec: type[Strict]) -> Document:
    """A description of one folder of the library: shipped, a file, or a mapping of what the file
    would hold. Raises DescriptionError where it is no such one."""
    if isinstance(given, Mapping):
        document = loads(to_yaml(plain(dict(given))), "mapping")
        document.marks = {path: Mark(document.file) for path in document.marks}
    else:
        document = load(find(folder, str(given)))
    (kind,) = get_args(spec.model_fields["kind"].annotation)
    if document.data.get("kind") != kind:
        raise document.error(f"expected kind: {kind}; got {document.data.get('kind')!r}", ("kind",))
    document.build(spec)
    return document


def label(value: Any) -> str:
    """A short name of an axis value: a file's stem, a mapping's name and options, or its text."""
    if isinstance(value, dict):
        rest = (f"{key}={label(item)}" for key, item in value.items() if key != "name")
        return " ".join([*([str(value["name"])] if "name" in value else []), *rest])
    text = str(value)
    return Path(text).name.split(".")[0] if "/" in text else text


def named(axis: str, value: Any) -> str:
    """A short name of a value of this axis: its own where the axis has such, else its label."""
    if axis in NAMED and isinstance(value, dict) and "name" in value:
        return str(value["name"])
    return label(value)


def _assign(document: Document, assignment: str) -> None:
    path, value = parse_assignment(assignment)
    keys = tuple(str(part) for part in path)
    mark = Mark(f"--set {assignment}")
    if keys[0] in ("axes", "controls", "changes"):
        depth = 1 if keys[0] == "axes" else 2
        document.put(
            (*keys[:depth], *([".".join(keys[depth:])] if keys[depth:] else [])), value, mark
        )
        return
    if keys[0] in SweepSpec.model_fields:
        document.put(path, value, mark)
        return
    kind = _kind(document)
    short = {**ALIASES, "policy": kind.policy}
    keys = short.get(keys[0], (keys[0],)) + keys[1:]
    if keys[0] not in kind.spec.model_fields:
        raise DescriptionError(suggestion(kind, keys), mark.file, None, ".".join(keys))
    axis = ".".join(keys)
    if axis in document.data["axes"]:
        document.put(("axes", axis), value if isinstance(value, list) else [value], mark)
    else:
        document.put(("base", *keys), value, mark)
        for length in range(2, len(keys) + 1):
            document.marks.setdefault(("base", *keys[: length - 1]), mark)


def _kind(document: Document) -> Kind:
    """What kind of experiment the sweep has; serving where it names none that is known."""
    return KINDS.get(str(document.data.get("measure")), KINDS["serving"])


def suggestion(kind: Kind, keys: tuple[str, ...]) -> str:
    """What to say of a path whose first key no experiment of the kind has."""
    if keys[0] in _DEVICE_KEYS:
        return f"not a key of a sweep; did you mean device_set.{'.'.join(keys)}?"
    for spec, prefix in ((kind.spec, ""), *((s, "device_set.") for s in _DEVICE_SPECS)):
        if (place := _holder(spec, keys[0])) is not None:
            return f"unknown key; did you mean {prefix}{place}.{'.'.join(keys)}?"
    known = {*kind.spec.model_fields, *SweepSpec.model_fields, *ALIASES, "policy"}
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


def absolute_paths(document: Document) -> None:
    """Paths of descriptions, tried as they stand and then beside the file, become absolute."""
    for key, kind in DESCRIBED.items():
        for place in _places(document, key.split(".")):
            value = document.get(place)
            if isinstance(value, str) and ("/" in value or value.endswith(_FILES)):
                mark = document.mark(place)
                document.put(place, _absolute(value, kind, document.file), mark)


def _places(document: Document, keys: list[str]) -> list[KeyPath]:
    """Where a sweep or a study may give this key of its experiment: in its base, on an axis, in the
    space, in a control or in a change."""
    found: list[KeyPath] = [("base", *keys)]
    for length in range(1, len(keys) + 1):
        path, rest = ".".join(keys[:length]), keys[length:]
        for listed in (("axes", path), ("space", path, "choice")):
            values = document.get(listed) or ()
            found += [(*listed, i, *rest) for i in range(len(values))]
        for group in ("controls", "changes"):
            found += [(group, name, path, *rest) for name in document.data.get(group, {})]
        for name in document.data.get("break_even", {}):
            found.append(("break_even", name, "given", path, *rest))
            if document.get(("break_even", name, "path")) == path:
                choices = document.get(("break_even", name, "choice")) or {}
                found += [("break_even", name, "choice", each, *rest) for each in choices]
    return found


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
        for variant in _variants(spec, document):
            points += lay_out(spec, document, variant, len(points), control)
    return points


def _variants(spec: SweepSpec, document: Document) -> list[Variant]:
    if spec.break_even:
        return [Variant({break_even.PARAMETER: AS_DESCRIBED}, [])]
    return what_if.variants(spec.changes, spec.together, document)


def further(sweep: Sweep, records: Iterable[Record]) -> list[Point]:
    """The points that the results of those there are ask for; none where nothing is sought, or all
    is found. See `break_even`."""
    spec = sweep.spec
    if not spec.break_even:
        return []
    known = Evaluations(
        (record for record in records if record["point"] < len(sweep.points)),
        spec.measure, spec.compare, spec.axes[spec.compare],
        sweep.points[0].experiment.replications,
    )  # fmt: skip
    where = break_even.places(spec.axes, spec.compare)
    points: list[Point] = []
    for variant in break_even.variants(spec.break_even, known, where, sweep.document):
        points += lay_out(spec, sweep.document, variant, len(sweep.points) + len(points))
    return points


def lay_out(
    spec: SweepSpec, document: Document, variant: Variant, first: int, control: str = ""
) -> list[Point]:
    """The points of a variant: it crossed with the axes, numbered from `first` on."""
    points: list[Point] = []
    kind = KINDS[spec.measure]
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
        built = experiment_with(document, kind, changes)
        points.append(Point(first + len(points), overrides, control, built))
    return points


def experiment_with(document: Document, kind: Kind, changes: Iterable[Change]) -> Described:
    """The `base` of a document, changed at these paths in turn. Raises DescriptionError."""
    experiment = _experiment_document(document)
    for change in changes:
        _put(kind, experiment, *change)
    _fill(kind, experiment)
    return experiment.build(kind.spec)


def _fill(kind: Kind, experiment: Document) -> None:
    """`policy: paged` is short for `policy: {name: paged}`; the model is given once."""
    _fill_policy(kind, experiment)
    if "serving" not in kind.spec.model_fields:
        return
    if experiment.get(("serving", "model")) is not None:
        raise experiment.error("give the model as `model`, beside serving", ("serving", "model"))
    if (model := experiment.get(("model",))) is not None:
        experiment.put(("serving", "model"), model, experiment.mark(("model",)))


def _fill_policy(kind: Kind, experiment: Document) -> None:
    if isinstance(name := experiment.get(kind.policy), str):
        experiment.put((*kind.policy, "name"), name, experiment.mark(kind.policy))


def _experiment_document(document: Document) -> Document:
    marks = {path[1:]: mark for path, mark in document.marks.items() if path[:1] == ("base",)}
    return Document(copy.deepcopy(document.data["base"]), document.file, marks)


def _put(kind: Kind, experiment: Document, path: str, value: Any, mark: Mark) -> None:
    keys: KeyPath = tuple(path.split("."))
    if keys[0] not in kind.spec.model_fields:
        raise DescriptionError(suggestion(kind, tuple(map(str, keys))), mark.file, mark.line, path)
    if keys[: len(kind.policy)] == kind.policy and len(keys) > len(kind.policy):
        _fill_policy(kind, experiment)
    experiment.put(keys, copy.deepcopy(value), mark)


def _config(sweep: Sweep) -> dict[str, Any]:
    """The sweep with every default written out."""
    data = {key: value for key, value in sweep.document.data.items() if key != "resolved"}
    base = with_defaults(_kind(sweep.document).spec, data["base"])
    for path in data["axes"]:
        _without(base, path.split("."))
    return copy.deepcopy({**data, "base": base})


def with_defaults(model: type[BaseModel], data: dict[str, Any]) -> dict[str, Any]:
    """`data` with the defaults of `model` and of the models in it written out."""
    full = dict(data)
    for name, info in model.model_fields.items():
        key = info.alias or name
        given = data.get(key, data.get(name))
        default = None if info.is_required() else info.get_default(call_default_factory=True)
        inner = info.annotation
        if default is not None and not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            inner = type(default)
        if isinstance(given, dict) and name == "engine":  # what a policy is may hang on it
            inner = _chosen(info, given) or inner
        nested = isinstance(inner, type) and issubclass(inner, BaseModel)
        if nested and isinstance(given if given is not None else default, (dict, BaseModel)):
            full[key] = with_defaults(inner, given or _explicit(default))  # type: ignore[arg-type]
        elif given is not None:
            full[key] = given
        elif isinstance(default, (bool, int, float, str, list, dict)):
            full[key] = _as_written(default, info)
    return full


def _chosen(info: FieldInfo, given: dict[str, Any]) -> type[BaseModel] | None:
    """The options that `given` names where a field is a choice of several, such as a policy."""
    field_type = cast(Any, Annotated)[(info.annotation, *info.metadata)]
    try:
        found = TypeAdapter(field_type).validate_python(given)
    except ValidationError:  # an axis gives the rest
        return None
    return type(found) if isinstance(found, BaseModel) else None


def _as_written(default: Any, info: FieldInfo) -> Any:
    """A default as a description writes it: a quantity with its unit."""
    for written, unit, scale in _UNITS:
        if written.__metadata__[0] in info.metadata:
            return f"{to_yaml_flow(default / scale if scale > 1 else default)}{unit}"
    return default


def _explicit(default: Any) -> dict[str, Any]:
    return default.model_dump(exclude_unset=True) if isinstance(default, BaseModel) else {}


def _without(data: dict[str, Any], keys: list[str]) -> None:
    for key in keys[:-1]:
        data = data.get(key, {})
        if not isinstance(data, dict):
            return
    data.pop(keys[-1], None)

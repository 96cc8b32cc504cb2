"""Points laid out: a base, changed at paths; and what is wrong with a path."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from hwmodel.description.description import (
    DescriptionError,
    Document,
    KeyPath,
    Mark,
    Mistakes,
    nearest,
)
from hwmodel.description.library import find
from hwmodel.specs.accelerator import AcceleratorSpec
from hwmodel.specs.memory_spec import MemorySpec
from sweeps.analyse.label import label
from sweeps.plan.experiment import Described
from sweeps.plan.rules import sweep_specs
from sweeps.plan.sweep_spec import Point, RunSpec, SweepSpec
from sweeps.plan.variant import Change, Layer

ALIASES = {"fidelity": ("serving", "memory", "fidelity")}
"""Short names that `--set` takes for paths of the experiment, beside `policy`."""
DESCRIBED = {
    "device": "accelerators", "model": "models", "workload": "workloads",
    "serving.predictor.table": "predictors", "serving.predictor.model": "predictors",
    "serving.weights": "formats", "serving.kv": "formats",
}  # fmt: skip
"""Keys of an experiment that name a description, and the folder of the library they name it in."""
_DATA = (".csv", ".jsonl", ".gz", ".json")
_ENGINE = ("serving", "engine")
_FILES = (".yaml", ".yml", *_DATA)
_DEVICE_SPECS = (AcceleratorSpec, MemorySpec)
_DEVICE_KEYS = {key for spec in _DEVICE_SPECS for key in spec.model_fields} - {
    "kind", "name", "summary", "sources",
}  # fmt: skip


def refuse_unknown_path(
    experiment: type[Described], keys: tuple[str, ...], mark: Mark,
    specs: Sequence[type[BaseModel]] = (),
) -> None:  # fmt: skip
    """Raise DescriptionError for a path that the experiment does not have, with the nearest of it
    and of what it is planned in: one of `specs`, those of sweeps where there are none."""
    if keys[0] not in experiment.model_fields:
        why = _suggestion(experiment, keys, specs)
    elif len(keys) > 1 and f"{keys[0]}_set" in experiment.model_fields:
        why = f"names a description; did you mean {keys[0]}_set.{'.'.join(keys[1:])}?"
    else:
        return
    raise DescriptionError(why, mark.file, mark.line, ".".join(keys))


def _suggestion(
    experiment: type[Described], keys: tuple[str, ...], specs: Sequence[type[BaseModel]]
) -> str:
    if keys[0] in _DEVICE_KEYS:
        return f"not a key of a sweep; did you mean device_set.{'.'.join(keys)}?"
    for spec, prefix in ((experiment, ""), *((s, "device_set.") for s in _DEVICE_SPECS)):
        if (place := _holder(spec, keys[0])) is not None:
            return f"unknown key; did you mean {prefix}{place}.{'.'.join(keys)}?"
    every = (experiment, *(specs or sweep_specs()))
    known = {*(key for spec in every for key in spec.model_fields), *ALIASES, "policy"}
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


def absolute_paths(document: Document, spec: type[RunSpec]) -> bool:
    """Paths of descriptions, tried as they stand and then beside the file, become absolute; whether
    there were any."""
    changed = False
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
                changed = True
    return changed


def _absolute(value: str, kind: str, sweep_file: str) -> str:
    if value.endswith(_DATA):
        beside = Path(sweep_file).parent / value
        for path in (Path(value), beside):
            if path.is_file():
                return str(path.absolute())
        raise DescriptionError("no such file", value)
    return str(find(kind, value, sweep_file).absolute())


def lay_out(
    spec: SweepSpec, document: Document, layer: Layer, first: int, control: str = ""
) -> list[Point]:
    """The points of a layer: it crossed with the axes, numbered from `first` on."""
    points: list[Point] = []
    experiment, mistakes = spec.experiment, Mistakes()
    for chosen in itertools.product(*(range(len(values)) for values in spec.axes.values())):
        overrides = dict(layer.head)
        changes: list[Change] = []
        for (axis, values), i in zip(spec.axes.items(), chosen, strict=True):
            overrides[axis] = values[i]
            changes.append((axis, values[i], document.mark(("axes", axis, i))))
        within = layer.within or {}
        if any(overrides[axis] != value for axis, value in within.items()):
            continue
        competitor = label(overrides[spec.compare])
        if layer.competitor in (None, competitor):
            changes += [*layer.changes, *layer.own.get(competitor, ())]
        if control:
            changes += spec.variants[control].changes(document, control)
        with mistakes.met():
            built = experiment_with(document, experiment, changes)
            points.append(Point(first + len(points), overrides, control, built))
    mistakes.answer()
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
    refuse_unknown_path(spec, keys, mark)
    if any(keys[: len(place)] == place != keys for place in _places(spec)):
        _fill_names(spec, experiment)
    experiment.put(keys, value, mark)

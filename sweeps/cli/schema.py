"""JSON Schemas of the YAML, for editors: from the specs that read it, so that the two agree.

Beside what a spec holds, a value may be written with its source (`{value: 18ns, source: gem5}`). A
sweep's or a study's `base` may leave out what axes supply; its axes are dotted paths into it.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from hwmodel.description.description import DescriptionError, nearest
from hwmodel.specs.accelerator import AcceleratorSpec
from hwmodel.specs.kernel_law import KernelClass
from hwmodel.specs.link import LinkSpec
from hwmodel.specs.memory_spec import MemorySpec
from hwmodel.specs.number_format import NumberFormat
from hwmodel.specs.transformer import TransformerSpec
from policies.memory.measured import MeasurementSpec
from policies.predictors.confusion import ConfusionTable
from policies.requests.workload import WorkloadSpec
from policies.serving.measured_server import ServerSpec
from policies.transfers.measured_transfers import TransferSpec
from sweeps.plan.experiment import ExperimentSpec
from sweeps.plan.measures import MEASURES, SERVING
from sweeps.plan.rules import sweep_specs
from sweeps.plan.sweep_spec import SweepSpec
from sweeps.run.store import write_atomically
from sweeps.study.study_spec import StudySpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ALL = "bankwise"
"""Name of the schema that has every kind in it."""
SPECS: dict[str, type[BaseModel]] = {
    "memory": MemorySpec, "accelerator": AcceleratorSpec, "kernels": KernelClass,
    "link": LinkSpec,
    "model": TransformerSpec,
    "format": NumberFormat, "workload": WorkloadSpec, "predictor": ConfusionTable,
    "measurement": MeasurementSpec, "server": ServerSpec, "transfers": TransferSpec,
    "sweep": SweepSpec, "study": StudySpec,
}  # fmt: skip
DESCRIPTIONS = tuple(SPECS)
EVERY = (None, *DESCRIPTIONS)
"""That of all kinds, and each."""
_OURS = ("hwmodel", "policies", "sweeps")
_FREE = ("device_set", "model_set", "workload_set")
"""Keys of an experiment that open other descriptions."""


@cache
def schema(kind: str | None = None) -> JsonSchemaValue:
    """The schema of one kind of description; of all, told apart by `kind`, where none is named.
    Not to be changed: it is built once.

    Raises DescriptionError for an unknown kind.
    """
    if kind is None:
        return _all()
    if kind not in SPECS:
        raise DescriptionError(f"no kind {kind!r}; {nearest(kind, list(DESCRIPTIONS))}")
    found = _of(SPECS[kind], _Editor)
    if "based_on" in SPECS[kind].model_fields:
        found = _or_based(found, SPECS[kind])
    elif kind == "sweep":
        _describe_sweep(found)
    elif kind == "study":
        _describe_study(found)
    return {"$schema": DIALECT, "title": f"bankwise {kind}", **found}


def write(folder: Path) -> list[Path]:
    """Write the schema of every kind as `KIND.json`, and `bankwise.json` for all."""
    found = texts(EVERY, indent=1)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in found.items():
        write_atomically(folder / f"{name}.json", text)
    return [folder / f"{name}.json" for name in found]


def texts(kinds: Sequence[str | None], indent: int | None = None) -> dict[str, str]:
    """Schemas as text, by name; None is that of all kinds. Raises DescriptionError."""
    return {each or ALL: json.dumps(schema(each), indent=indent) + "\n" for each in kinds}


def _all() -> JsonSchemaValue:
    parts = {kind: _moved(schema(kind), f"#/$defs/{kind}") for kind in DESCRIPTIONS}
    return {
        "$schema": DIALECT,
        "title": "bankwise",
        "type": "object",
        "properties": {"kind": {"enum": list(DESCRIPTIONS)}},
        "required": ["kind"],
        "allOf": [
            {"if": {"properties": {"kind": {"const": kind}}}, "then": {"$ref": f"#/$defs/{kind}"}}
            for kind in DESCRIPTIONS
        ],
        "$defs": parts,
    }


def _moved(found: JsonSchemaValue, to: str) -> JsonSchemaValue:
    """A schema as part of another, with its references following it."""
    part = {key: value for key, value in found.items() if key != "$schema"}
    return _referring(part, f"{to}/$defs/")


def _referring(found: JsonSchemaValue, to: str) -> JsonSchemaValue:
    """A schema whose definitions are elsewhere."""
    moved: JsonSchemaValue = json.loads(json.dumps(found).replace('"#/$defs/', f'"{to}'))
    return moved


def _of(spec: type[BaseModel], generator: type[GenerateJsonSchema]) -> JsonSchemaValue:
    return spec.model_json_schema(schema_generator=generator)


def _or_based(full: JsonSchemaValue, spec: type[BaseModel]) -> JsonSchemaValue:
    """A whole description, or beside `based_on` what differs from its base."""
    definitions = full.pop("$defs")
    found: JsonSchemaValue = {"type": "object", "$defs": {**definitions, "whole": full}}
    based = _part(found, "based", spec, _Based)
    found["$defs"]["based.base"]["required"] = ["kind", "name", "summary"]
    whole = {"$ref": "#/$defs/whole"}
    return {**found, "if": {"required": ["based_on"]}, "then": based, "else": whole}


class _Editor(GenerateJsonSchema):
    """Descriptions from docstrings, values with their sources, no defaults in Python's units."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        found = super().model_schema(schema)
        cls: type[BaseModel] = schema["cls"]
        told = docstrings_of(cls)
        for name, item in found.get("properties", {}).items():
            found["properties"][name] = _property(item, told.get(name))
        return found


class _Partial(_Editor):
    """Nothing is required: what is left out, an axis may supply."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        found = super().model_schema(schema)
        found.pop("required", None)
        return found


class _Based(_Partial):
    """What is left out stands in the base; `null` leaves out what stands there."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        found = super().model_schema(schema)
        for name, item in found.get("properties", {}).items():
            told = {"description": item.pop("description")} if "description" in item else {}
            found["properties"][name] = {"anyOf": [item, {"type": "null"}], **told}
        return found

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        found = super().dict_schema(schema)
        if isinstance(inner := found.get("additionalProperties"), dict):
            found["additionalProperties"] = {"anyOf": [inner, {"type": "null"}]}
        return found


def _property(item: JsonSchemaValue, told: str | None) -> JsonSchemaValue:
    """A field as an editor should see it."""
    item = {key: value for key, value in item.items() if key != "title"}
    default = item.pop("default", None)
    if item.pop("by_name", False):
        item = {"anyOf": [{"type": "string"}, item]}
    if isinstance(item.get("additionalProperties"), dict):
        item["additionalProperties"] = _sourced(item["additionalProperties"])
    found = _sourced(item)
    if isinstance(default, (bool, str)) or (
        isinstance(default, (int, float)) and item.get("type") in ("integer", "number")
    ):
        found["default"] = default
    return found | ({"description": told} if told else {})


def _sourced(value: JsonSchemaValue) -> JsonSchemaValue:
    """A value as it stands, or with who gives it."""
    if not value or "$ref" in value or value.get("additionalProperties") is True:
        return value
    with_source = {
        "type": "object",
        "properties": {
            "value": value,
            "source": {"type": ["string", "array"], "items": {"type": "string"}},
            "confidence": {"enum": ["A", "B", "C", "D"]},
            "note": {"type": ["string", "number"]},
            "alternatives": {},
        },
        "required": ["value"],
        "minProperties": 2,
        "additionalProperties": False,
    }
    return {"anyOf": [value, with_source]}


@cache
def docstrings_of(model: type[BaseModel]) -> dict[str, str]:
    """Field -> the docstring under it, of the class and of those it is made from."""
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if cls.__module__.split(".")[0] in _OURS:
            for pair in itertools.pairwise(_classes(cls.__module__)[cls.__name__].body):
                match pair:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ):
                        found[name] = " ".join(text.split())
    return found


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    """The classes of a module by their names, as they are written."""
    written = ast.parse(inspect.getsource(sys.modules[module])).body
    return {node.name: node for node in written if isinstance(node, ast.ClassDef)}


def _describe_sweep(found: JsonSchemaValue) -> None:
    """The keys of every design; `base`, `axes` and overrides by what is measured."""
    for spec in sweep_specs():
        more = _of(spec, _Editor)
        found["properties"] |= more["properties"]
        found.setdefault("$defs", {}).update(more.get("$defs", {}))
    found["allOf"] = []
    for name in MEASURES:
        base = _part(found, name, MEASURES[name])
        paths = _paths(base, found["$defs"])
        then: JsonSchemaValue = {"base": base, "axes": {"propertyNames": paths}}
        then["variants"] = _variants(paths)
        found["allOf"].append({"if": _measures(name), "then": {"properties": then}})


def _variants(paths: JsonSchemaValue) -> JsonSchemaValue:
    """What variants set: dotted paths."""
    each = {"properties": {"set": {"propertyNames": paths}}}
    return {"type": "object", "additionalProperties": each}


def _measures(name: str) -> JsonSchemaValue:
    """Whether a sweep measures this; the first where it names nothing."""
    rule: JsonSchemaValue = {"properties": {"measure": {"const": name}}}
    return rule if name == SERVING else {**rule, "required": ["measure"]}


def _describe_study(found: JsonSchemaValue) -> None:
    """`base`, `space` and `variants` of a study, which serves."""
    base = _part(found, "serving", ExperimentSpec)
    paths = _paths(base, found["$defs"])
    properties = found["properties"]
    properties["base"] = base
    properties["space"]["propertyNames"] = paths
    properties["variants"] = {**properties["variants"], **_variants(paths)}


def _part(
    found: JsonSchemaValue, name: str, spec: type[BaseModel],
    generator: type[GenerateJsonSchema] = _Partial,
) -> JsonSchemaValue:  # fmt: skip
    """Add the partial schema of an experiment or a device to the definitions; where it is."""
    base = _of(spec, generator)
    inner = base.pop("$defs", {})
    moved = _referring({"base": base, **inner}, f"#/$defs/{name}.")
    found.setdefault("$defs", {}).update({f"{name}.{key}": item for key, item in moved.items()})
    return {"$ref": f"#/$defs/{name}.base"}


def _paths(base: JsonSchemaValue, defs: dict[str, JsonSchemaValue]) -> JsonSchemaValue:
    """What dotted paths into an experiment there are."""
    known = list(dict.fromkeys(_walk(base, defs, "")))
    opened = "|".join(_FREE)
    inside = {"pattern": rf"^(({opened})\.|[\w.]+\[|[\w.]+\.[0-9])"}
    return {"anyOf": [{"enum": known}, inside]}


def _walk(item: JsonSchemaValue, defs: dict[str, JsonSchemaValue], prefix: str) -> Iterator[str]:
    """The dotted paths of a schema's properties, whichever of several it may be."""
    if "$ref" in item:
        item = defs[item["$ref"].removeprefix("#/$defs/")]
    for each in item.get("anyOf", ()):
        yield from _walk(each, defs, prefix)
    if "minProperties" in item:  # a value with its source
        return
    for name, inner in item.get("properties", {}).items():
        yield f"{prefix}{name}"
        yield from _walk(inner, defs, f"{prefix}{name}.")

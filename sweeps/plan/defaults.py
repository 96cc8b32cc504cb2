"""A description with every default written out, as a run's config has it."""

from __future__ import annotations

from typing import Annotated, Any, cast

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from hwmodel.description.units import (
    Bytes,
    BytesPerSecond,
    FlopsPerSecond,
    Milliwatts,
    Nanoseconds,
    Picojoules,
    PositiveBytes,
)
from hwmodel.description.yaml_writer import to_yaml_flow

_UNITS: tuple[tuple[Any, str, float], ...] = (
    (Nanoseconds, "ns", 1), (Bytes, "B", 1), (PositiveBytes, "B", 1), (Picojoules, "pJ", 1),
    (Milliwatts, "mW", 1), (BytesPerSecond, "MB/s", 1e6), (FlopsPerSecond, "GFLOPS", 1e9),
)  # fmt: skip
"""Field types of quantities, the unit they are written in, and its size in base units."""


def with_defaults(model: type[BaseModel], data: dict[str, Any]) -> dict[str, Any]:
    """`data` with the defaults of `model` and of the models in it written out."""
    if completed := getattr(model, "completed", None):  # what hangs on other keys
        data = completed(data)
    full = dict(data)
    for name, info in model.model_fields.items():
        key = info.alias or name
        given = data.get(key, data.get(name))
        default = None if info.is_required() else info.get_default(call_default_factory=True)
        inner = info.annotation
        known = isinstance(inner, type) and issubclass(inner, BaseModel)
        if default is not None and (not known or name == "predictor"):
            inner = type(default)
        # what a policy is, or what keys there are, may hang on it
        if isinstance(given, dict) and name in ("engine", "predictor"):
            inner = _chosen(info, given) or inner
        nested = isinstance(inner, type) and issubclass(inner, BaseModel)
        if nested and isinstance(given if given is not None else default, (dict, BaseModel)):
            full[key] = with_defaults(inner, given or _explicit(default))  # type: ignore[arg-type]
        elif given is not None or key in data:
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

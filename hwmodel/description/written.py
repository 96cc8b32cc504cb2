"""How values stand in YAML where that is not how a spec holds them: for the schema of editors.

Validators say what is read; these say what may be written, and `sweeps.cli.schema` collects it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import (
    BaseModel,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from hwmodel.description.description import again, nearest

Models = Callable[[], dict[str, type[BaseModel]]]
"""What is registered now, by name."""


def text(pattern: str, example: str) -> WithJsonSchema:
    """A text of this form instead of the number it stands for."""
    return WithJsonSchema({"type": "string", "pattern": pattern, "examples": [example]})


@dataclass(frozen=True)
class Also:
    """What may be written beside the value itself, as a JSON Schema."""

    schema: tuple[tuple[str, Any], ...]
    """Its keys; lists as tuples, so that a type can be hashed."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        own = {k: list(v) if isinstance(v, tuple) else v for k, v in self.schema}
        return {"anyOf": [own, handler(core)]}


TEXT_TOO = Also((("type", "string"),))
"""A text stands for the value."""


NAME_TOO: dict[str, Any] = {"by_name": True}
"""`json_schema_extra` of a field that may name its description instead of holding it."""


@dataclass(frozen=True)
class KeysOf:
    """A mapping with keys of this model, none of which is required of it."""

    model: type[BaseModel]

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(self.model.__pydantic_core_schema__)


class _Read:
    """What reads options as written before their own type checks them."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._options, handler(source))

    def _options(self, value: Any) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class Chosen(_Read):
    """The options of one of several `kind`s, distinguished by `key`, or `default` where there is
    none; by its name alone where `short`."""

    kind: str
    models: Models
    default: str | None = None
    short: bool = False
    key: str = "name"
    packaged: tuple[tuple[str, str], ...] = ()
    """(name, package under `examples/packages` that brings it)."""

    def _options(self, value: Any) -> Any:
        """`{name: paged, ...}` -> the options of that one."""
        if not isinstance(value, dict) or (self.key not in value and self.default is None):
            return value
        models, name = self.models(), value.get(self.key, self.default)
        if not isinstance(name, str) or name not in models:
            raise _unknown(self.kind, str(name), models, dict(self.packaged))
        return models[name].model_validate(value)

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        models = self.models()
        names: Iterable[JsonSchemaValue] = [{"enum": list(models)}] if self.short else []
        options = [
            handler(model.__pydantic_core_schema__) for model in dict.fromkeys(models.values())
        ]
        return {"anyOf": [*names, *options]}


@dataclass(frozen=True)
class Named(_Read):
    """The options of the one of a `kind` that is registered as `name`, or none."""

    kind: str
    name: str
    models: Models

    def _options(self, value: Any) -> Any:
        if value is None or isinstance(value, BaseModel):
            return value
        models = self.models()
        if self.name not in models:
            raise _unknown(self.kind, self.name, models)
        return models[self.name].model_validate(value)

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        models = self.models()
        own = [handler(models[self.name].__pydantic_core_schema__)] if self.name in models else []
        return {"anyOf": [*own, {"type": "null"}]}


@dataclass(frozen=True)
class ByName(_Read):
    """A mapping of names of a `kind` to the options of each; without a value its defaults."""

    kind: str
    models: Models

    def _options(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        models, read = self.models(), dict[str, BaseModel]()
        found: list[InitErrorDetails] = []
        for name, options in value.items():
            if name not in models:
                error = _unknown(self.kind, str(name), models)
                found.append(InitErrorDetails(type=error, loc=(str(name),), input=name))
            elif isinstance(options, BaseModel):
                read[name] = options
            else:
                try:
                    read[name] = models[name].model_validate({} if options is None else options)
                except ValidationError as error:
                    inner = (again(item) for item in error.errors())
                    found += [{**each, "loc": (name, *each["loc"])} for each in inner]
        if found:
            raise ValidationError.from_exception_data(self.kind, found)
        return read

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        options = {
            name: {"anyOf": [handler(model.__pydantic_core_schema__), {"type": "null"}]}
            for name, model in self.models().items()
        }
        return {"type": "object", "properties": options, "additionalProperties": False}


PLUGGED = ("policy", "engine", "predictor", "connector", "controller")
"""Kinds that a plug-in may add to."""


def _unknown(
    kind: str, name: str, models: Iterable[str], packaged: Mapping[str, str] | None = None
) -> PydanticCustomError:
    if packaged and name in packaged:
        hint = {"kind": kind, "name": name, "install": install(packaged[name])}
        return PydanticCustomError("unknown_choice", "{kind} {name} is not there; {install}", hint)
    hint = {"kind": kind, "hint": nearest(name, list(models))}
    own = " (--plugin FILE.py brings your own)" if kind in PLUGGED else ""
    return PydanticCustomError("unknown_choice", "unknown {kind}; {hint}" + own, hint)


def install(package: str) -> str:
    """How to get a package that comes with bankwise."""
    return f"pip install ./examples/packages/{package}"

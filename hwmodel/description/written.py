"""How values stand in YAML where that is not how a spec holds them: for the schema of editors.

Validators say what is read; these say what may be written, and `sweeps.cli.schema` collects it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from hwmodel.description.description import nearest


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


@dataclass(frozen=True)
class Chosen:
    """The options of one of several `kind`s, distinguished by `key`, or `default` where there is
    none; by its name alone where `short`."""

    kind: str
    models: Callable[[], dict[str, type[BaseModel]]]
    default: str | None = None
    short: bool = False
    key: str = "name"

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._options, handler(source))

    def _options(self, value: Any) -> Any:
        """`{name: paged, ...}` -> the options of that one."""
        if not isinstance(value, dict) or (self.key not in value and self.default is None):
            return value
        models, name = self.models(), value.get(self.key, self.default)
        if not isinstance(name, str) or name not in models:
            hint = {"kind": self.kind, "hint": nearest(str(name), list(models))}
            raise PydanticCustomError("unknown_choice", "unknown {kind}; {hint}", hint)
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

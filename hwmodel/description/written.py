"""How values stand in YAML where that is not how a spec holds them: for the schema of editors.

Validators say what is read; these say what may be written, and `sweeps.cli.schema` collects it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


def text(pattern: str, example: str) -> WithJsonSchema:
    """A text of this form instead of the number it stands for."""
    return WithJsonSchema({"type": "string", "pattern": pattern, "examples": [example]})


@dataclass(frozen=True)
class Also:
    """What may be written beside the value itself, as a JSON Schema."""

    schema: tuple[tuple[str, Any], ...]

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [dict(self.schema), handler(core)]}


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
    """The options of one of several, distinguished by `name`; by its name alone where `short`."""

    models: Callable[[], dict[str, type[BaseModel]]]
    short: bool = False

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        models = self.models()
        names: Iterable[JsonSchemaValue] = [{"enum": list(models)}] if self.short else []
        options = [handler(model.__pydantic_core_schema__) for model in models.values()]
        return {"anyOf": [*names, *options]}

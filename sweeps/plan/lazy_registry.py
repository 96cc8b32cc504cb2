"""What descriptions name, each loaded when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TypeVar

Value = TypeVar("Value")


class Registry(Mapping[str, Value]):
    """`places`: a line each, `name: "module:attribute"`."""

    def __init__(self, places: dict[str, str]) -> None:
        self.places = places

    def __getitem__(self, name: str) -> Value:
        module, _, attribute = self.places[name].partition(":")
        found: Value = getattr(import_module(module), attribute)
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.places

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

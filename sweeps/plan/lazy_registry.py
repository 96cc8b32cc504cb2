"""What descriptions name, each loaded when it is first asked for; plug-ins add theirs."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import TypeVar

Value = TypeVar("Value")


class Registry(MutableMapping[str, Value]):
    """`places`: a line each, `name: "module:attribute"`; what else is set can be taken away."""

    def __init__(self, places: dict[str, str]) -> None:
        self.places = places
        self._added: dict[str, Value] = {}

    def __getitem__(self, name: str) -> Value:
        if name in self._added:
            return self._added[name]
        module, _, attribute = self.places[name].partition(":")
        found: Value = getattr(import_module(module), attribute)
        return found

    def __setitem__(self, name: str, value: Value) -> None:
        self._added[name] = value

    def __delitem__(self, name: str) -> None:
        del self._added[name]

    def clear(self) -> None:
        """Take away all that was added."""
        self._added.clear()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self.places or name in self._added)

    def __iter__(self) -> Iterator[str]:
        return iter({**self.places, **self._added})

    def __len__(self) -> int:
        return len({**self.places, **self._added})

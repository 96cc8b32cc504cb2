"""Strict descriptions: every mistake is answered with file, line, dotted path and the nearest key.

YAML -> `Document` (plain data, with the place and the source of every value; `yaml_reader`) -> a
typed frozen spec.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

KeyPath = tuple[str | int, ...]
Spec = TypeVar("Spec", bound=BaseModel)

_QUOTED = re.compile(r"'([^']*)'")
_STATED_PATH = re.compile(r"^([A-Za-z_][\w.\[\]]*): (.*)$", re.DOTALL)
_LABEL = re.compile(r"[A-Z]\w*|.*[-\[(].*|str|int|float|bool|none|dict|list|tuple|any")
"""What pydantic calls a member of a union."""
_MOST_LISTED = 30
"""Names that are listed where none is near."""


def dotted(path: KeyPath) -> str:
    """`("timing", "tRCD", 0)` -> `timing.tRCD[0]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def nearest_name(word: str, known: list[str]) -> str | None:
    """The one of `known` that is nearest to `word`, if any is near."""
    plural = word.removesuffix("ys") + "ies"  # a plural spelled as others are is not the singular
    if word.endswith("ys") and plural in known:
        return plural
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return close[0]
    lowered = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), list(lowered), n=1, cutoff=0.5)
    return lowered[close[0]] if close else None


def nearest(word: str, known: list[str]) -> str:
    """A suggestion clause: the nearest of `known` to `word`; where nothing is near, all of them, or
    the three most alike of more than a line of names."""
    name = nearest_name(word, known)
    if name is not None:
        return f"did you mean {name!r}?"
    if len(known) > _MOST_LISTED:
        alike = difflib.get_close_matches(word, known, n=3, cutoff=0)
        return f"known: {len(known)} names, such as {', '.join(alike)}"
    return f"known: {', '.join(sorted(known))}" if known else "nothing is known here"


class DescriptionError(Exception):
    """The user's input is at fault. `str()` is one line a mistake: `file:line: path: message`."""

    def __init__(
        self, message: str, file: str | Path | None = None, line: int | None = None, path: str = ""
    ) -> None:
        self.message = " ".join(str(message).split())
        self.file = None if file is None else str(file)
        self.line = line
        self.path = path or ""
        place = "" if self.file is None else self.file + (f":{line}" if line else "") + ": "
        super().__init__(place + (f"{self.path}: " if self.path else "") + self.message)

    @property
    def place(self) -> tuple[object, ...]:
        """Where it is; of one that has no line, all of it."""
        return (self.file, self.line, self.path) if self.line else (str(self),)


class DescriptionErrors(DescriptionError):
    """Several mistakes of one document; `str()` has a line for each."""

    def __init__(self, errors: list[DescriptionError]) -> None:
        first = errors[0]
        super().__init__(first.message, first.file, first.line, first.path)
        self.errors = errors
        self.args = ("\n".join(str(error) for error in errors),)


class Mistakes(list[DescriptionError]):
    """Mistakes that are met one after another, to be answered together; one of each place."""

    @contextmanager
    def met(self) -> Iterator[None]:
        """Keep the mistakes that are raised inside, and go on."""
        try:
            yield
        except DescriptionError as error:
            known = {each.place for each in self}
            self += [each for each in getattr(error, "errors", [error]) if each.place not in known]

    def answer(self) -> None:
        """Raise them, where there are any."""
        if self:
            raise self[0] if len(self) == 1 else DescriptionErrors(list(self))


@dataclass(frozen=True)
class Mark:
    """Where a value was written: a file and its line, or a `--set` argument."""

    file: str
    line: int | None = None


@dataclass(frozen=True)
class Provenance:
    """The source of a number, its confidence (A to D) and a note."""

    value: Any
    source: tuple[str, ...]
    confidence: str | None = None
    note: str | None = None

    @property
    def assumed(self) -> bool:
        return "assumed" in self.source


@dataclass
class Document:
    """One YAML document: plain data, and for each path its mark and, where given, its
    provenance."""

    data: dict[str, Any]
    file: str
    marks: dict[KeyPath, Mark] = field(default_factory=dict)
    provenance: dict[KeyPath, Provenance] = field(default_factory=dict)
    digest: str = ""

    def mark(self, path: KeyPath) -> Mark:
        """The mark of `path`, or of its nearest ancestor that has one."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.marks:
                return self.marks[path[:length]]
        return Mark(self.file)

    def error(self, message: str, path: KeyPath = ()) -> DescriptionError:
        """A DescriptionError placed at `path` of this document."""
        mark = self.mark(path)
        return DescriptionError(message, mark.file, mark.line, dotted(path))

    def get(self, path: KeyPath, default: Any = None) -> Any:
        """The value at `path`, or `default`."""
        value: Any = self.data
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return default
        return value

    def put(self, path: KeyPath, value: Any, mark: Mark) -> None:
        """Set `path` to a copy of `value`, making mappings on the way; its old marks and sources
        go."""
        before = self.get(path)
        here: Any = self.data
        for depth, part in enumerate(path[:-1]):
            if isinstance(here, list):
                here = here[_list_index(here, part, self, path[: depth + 1])]
                continue
            if not isinstance(here.get(part), (dict, list)):
                here[part] = {}
            here = here[part]
        last = path[-1]
        if isinstance(here, list):
            last = _list_index(here, last, self, path)
        here[last] = deepcopy(value)
        for table in (self.marks, self.provenance):
            if isinstance(before, (dict, list)):
                for key in _within(path, table):
                    del table[key]
            else:  # nothing lies inside a plain value
                table.pop(path, None)
        self.marks[path] = mark

    def copy(self, source: KeyPath, target: KeyPath) -> None:
        """Put the value at `source`, with its mark and source, at `target` too."""
        self.put(target, self.get(source), self.mark(source))
        if source in self.provenance:
            self.provenance[target] = self.provenance[source]

    def graft(self, path: KeyPath, other: Document, source: KeyPath = ()) -> None:
        """Put what another document has at `source`, with its marks and sources, at `path`."""
        value = other.get(source)
        self.put(path, value, other.mark(source))
        tables: Any = (self.marks, other.marks), (self.provenance, other.provenance)
        for ours, theirs in tables:
            if isinstance(value, (dict, list)):
                for key in _within(source, theirs):
                    ours[path + key[len(source) :]] = theirs[key]
            elif source in theirs:
                ours[path] = theirs[source]

    def build(self, model: type[Spec]) -> Spec:
        """Validate into `model`. Raises DescriptionError(s) with file, line, path and nearest
        key."""
        try:
            return model.model_validate(self.data)
        except ValidationError as error:
            items = [
                ErrorDetails(**{**item, "loc": _without_labels(item, self.data)})
                for item in error.errors()
            ]
            problems = [
                mistake for item in _without_echoes(items) for mistake in _mistakes(self, item)
            ]
            raise (problems[0] if len(problems) == 1 else DescriptionErrors(problems)) from None

    def assumed(self) -> dict[str, Provenance]:
        """Every value whose source is `assumed`, by dotted path."""
        return {dotted(k): p for k, p in sorted(self.provenance.items(), key=str) if p.assumed}


def _within(path: KeyPath, table: Iterable[KeyPath]) -> list[KeyPath]:
    """The keys of a table at `path` and inside it, in the table's order."""
    if not path:
        return list(table)
    first, depth = path[0], len(path)
    return [key for key in table if key and key[0] == first and key[:depth] == path]


def _list_index(items: list[Any], part: str | int, document: Document, path: KeyPath) -> int:
    text = str(part)
    if not text.isdigit() or int(text) >= len(items):
        raise document.error(f"expected an index from 0 to {len(items) - 1}; got {text!r}", path)
    return int(text)


def key_path(text: str) -> KeyPath:
    """The keys of a dotted path; `a.b[0]` is `a`, `b`, `0`."""
    return tuple(part for part in re.split(r"[.\[\]]+", text.strip()) if part)


def checked(rule: Callable[[Any], None]) -> Any:
    """Makes of a spec's method a check once its fields are read: of what they hold together. The
    method raises ValueError."""

    @wraps(rule)
    def run(self: Any) -> Any:
        rule(self)
        return self

    return model_validator(mode="after")(run)


class Strict(BaseModel):
    """Base of every spec: frozen, no unknown keys (answered with the nearest one), no coercion."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)
    renamed: ClassVar[dict[str, str]] = {}
    """A key of earlier versions -> the key that it is now."""

    @classmethod
    def meant(cls, data: Any) -> str:
        """`; did you mean ...?` of what is no mapping, where a spec can tell."""
        return ""

    @model_validator(mode="wrap")
    @classmethod
    def _known_keys(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(data, cls):
            return data
        if not isinstance(data, dict):
            keys = ", ".join(cls.model_fields)
            raise PydanticCustomError(
                "not_a_mapping",
                "expected a mapping with keys {keys}; got {got}{hint}",
                {"keys": keys, "got": repr(data), "hint": cls.meant(data)},
            )
        names = _names(cls)
        unknown = [key for key in data if key not in names]
        if not unknown:
            return handler(data)
        found = [
            _unknown_key(str(key), data[key], sorted(names), cls.renamed.get(str(key)))
            for key in unknown
        ]
        try:
            handler({key: value for key, value in data.items() if key in names})
        except ValidationError as error:  # reported together with the unknown keys
            found += [again(item) for item in error.errors()]
        raise ValidationError.from_exception_data(cls.__name__, found)


@cache
def _names(model: type[BaseModel]) -> frozenset[str]:
    """The keys that a spec knows."""
    fields = model.model_fields
    return frozenset({field.alias or name for name, field in fields.items()}.union(fields))


def _unknown_key(key: str, value: Any, known: list[str], now: str | None) -> InitErrorDetails:
    context = {"key": key, "known": known, "now": now}
    error = PydanticCustomError("unknown_key", "unknown key", context)
    return InitErrorDetails(type=error, loc=(key,), input=value)


def again(item: ErrorDetails) -> InitErrorDetails:
    """An error already found, to be raised once more beside others."""
    context: dict[str, Any] = item.get("ctx", {})
    message = item["msg"].replace("{", "{{").replace("}", "}}")
    error = PydanticCustomError(item["type"], message, context)
    return InitErrorDetails(type=error, loc=item["loc"], input=item["input"])


def _without_labels(item: ErrorDetails, data: Any) -> KeyPath:
    """Where an error is, without the names of union members."""
    location, kept, inside = item["loc"], [], data
    for place, part in enumerate(location):
        there = _has(inside, part)
        named = item["type"] == "missing" and place == len(location) - 1
        if there or named or not (isinstance(part, str) and _LABEL.fullmatch(part)):
            kept.append(part)
            inside = inside[part] if there else None
    return tuple(kept)


def _without_echoes(items: list[ErrorDetails]) -> list[ErrorDetails]:
    """A misspelt required key is also a missing one, and all that it should hold: report it
    once."""
    meant = {
        (*item["loc"][:-1], nearest_name(item["ctx"]["key"], item["ctx"]["known"]))
        for item in items
        if item["type"] == "unknown_key"
    }
    return [
        item
        for item in items
        if item["type"] != "missing"
        or not any(item["loc"][: end + 1] in meant for end in range(len(item["loc"])))
    ]


def _mistakes(document: Document, item: Any) -> list[DescriptionError]:
    path: KeyPath = tuple(item["loc"])
    context = item.get("ctx") or {}
    if item["type"] == "unknown_key":
        now = context["now"]
        name, colon, rest = context["key"].partition(":")
        if colon and item.get("input") is None and name in context["known"]:
            return [document.error(f"a space is missing: {name}: {rest}", path[:-1])]
        hint = nearest(context["key"], context["known"]) if now is None else f"it is {now!r} now"
        message = f"unknown key; {hint}"
        return [document.error(message, path)]
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "missing":
        return [document.error(f"key {path[-1]!r} is missing", path)]
    if not path and (stated := _stated(document, message)):
        # a whole-document check names its place at the head of its message
        path, message = stated
    value = item.get("input")
    if item["type"] not in ("value_error", "not_a_mapping") and not isinstance(value, (dict, list)):
        message = f"{message}; got {value!r}"
    if item["type"] == "literal_error":
        meant = nearest_name(str(value), _QUOTED.findall(context["expected"]))
        message += f"; did you mean {meant!r}?" if meant else ""
    return [document.error(message, path)]


def _stated(document: Document, message: str) -> tuple[KeyPath, str] | None:
    """The place that a message begins with, and what it says of it. A key that is there may have
    any name, such as a variant's."""
    there = [path for path in document.marks if path and message.startswith(f"{dotted(path)}: ")]
    if there:
        path = max(there, key=len)
        return path, message.removeprefix(f"{dotted(path)}: ")
    if (stated := _STATED_PATH.match(message)) is None:
        return None
    parts = [part for part in re.split(r"[.\[\]]+", stated.group(1)) if part]
    return tuple(int(part) if part.isdigit() else part for part in parts), stated.group(2)


def _has(value: Any, part: str | int) -> bool:
    if isinstance(value, dict):
        return part in value
    return isinstance(value, list) and isinstance(part, int) and part < len(value)

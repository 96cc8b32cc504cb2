"""Strict YAML descriptions: every mistake is answered with file, line, dotted path and the nearest
key.

YAML -> `Document` (plain data, with the place and the source of every value) -> a typed frozen
spec. PyYAML's surprises are refused instead of guessed at: duplicate keys, `1e9` (a string to
PyYAML), `010` (octal), `12:30` (sexagesimal), `yes`/`no`.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError
from yaml.composer import Composer

import yaml

KeyPath = tuple[str | int, ...]
Spec = TypeVar("Spec", bound=BaseModel)

FOLDERS = (
    "memories", "accelerators", "models", "formats", "workloads", "predictors", "measurements",
    "servers", "sweeps", "studies",
)  # fmt: skip
_PACKAGED = Path(__file__).parents[1] / "library"
LIBRARY = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[2] / "yaml"
"""The shipped descriptions: `hwmodel/library` in an installed wheel, `yaml/` in a clone."""

_LIBYAML: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SOURCE_KEYS = {"value", "source", "confidence", "note", "alternatives"}
_EXPONENT = re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
_OCTAL = re.compile(r"^[-+]?0[0-9_]+$")
_SEXAGESIMAL = re.compile(r"^[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?$")
_STATED_PATH = re.compile(r"^([A-Za-z_][\w.\[\]]*): (.*)$", re.DOTALL)
_MOST_LISTED = 30
"""Names that are listed where none is near."""
_MAX_DEPTH = 50
"""Levels of nested mappings and lists; what ships has nine at most."""
_MAX_ALIASED = 100_000
"""Values that aliases may repeat."""
_YAML11_BOOL = {"yes", "no", "on", "off", "y", "n"}


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


class DescriptionErrors(DescriptionError):
    """Several mistakes of one document; `str()` has a line for each."""

    def __init__(self, errors: list[DescriptionError]) -> None:
        first = errors[0]
        super().__init__(first.message, first.file, first.line, first.path)
        self.errors = errors
        self.args = ("\n".join(str(error) for error in errors),)


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
        """Set `path` to `value`, making mappings on the way; its old marks and sources go."""
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
        here[last] = value
        for table in (self.marks, self.provenance):
            for key in [key for key in table if key[: len(path)] == path]:
                del table[key]
        self.marks[path] = mark

    def copy(self, source: KeyPath, target: KeyPath) -> None:
        """Put the value at `source`, with its mark and source, at `target` too."""
        self.put(target, self.get(source), self.mark(source))
        if source in self.provenance:
            self.provenance[target] = self.provenance[source]

    def graft(self, path: KeyPath, other: Document, source: KeyPath = ()) -> None:
        """Put what another document has at `source`, with its marks and sources, at `path`."""
        self.put(path, other.get(source), other.mark(source))
        for key, mark in other.marks.items():
            if key[: len(source)] == source:
                self.marks[path + key[len(source) :]] = mark
        for key, provenance in other.provenance.items():
            if key[: len(source)] == source:
                self.provenance[path + key[len(source) :]] = provenance

    def override(self, assignment: str) -> KeyPath:
        """Apply one `dotted.path=value` (the value is YAML) and return its path.

        Raises DescriptionError if it does not read as an assignment.
        """
        path, value = parse_assignment(assignment)
        self.put(path, value, Mark(f"--set {assignment}"))
        return path

    def build(self, model: type[Spec]) -> Spec:
        """Validate into `model`. Raises DescriptionError(s) with file, line, path and nearest
        key."""
        try:
            return model.model_validate(self.data)
        except ValidationError as error:
            found = [
                mistake
                for item in _without_echoes(error.errors())
                for mistake in _mistakes(self, item)
            ]
            raise (found[0] if len(found) == 1 else DescriptionErrors(found)) from None

    def assumed(self) -> dict[str, Provenance]:
        """Every value whose source is `assumed`, by dotted path."""
        return {dotted(k): p for k, p in sorted(self.provenance.items(), key=str) if p.assumed}


def _list_index(items: list[Any], part: str | int, document: Document, path: KeyPath) -> int:
    text = str(part)
    if not text.isdigit() or int(text) >= len(items):
        raise document.error(f"expected an index from 0 to {len(items) - 1}; got {text!r}", path)
    return int(text)


def key_path(text: str) -> KeyPath:
    """The keys of a dotted path; `a.b[0]` is `a`, `b`, `0`."""
    return tuple(part for part in re.split(r"[.\[\]]+", text.strip()) if part)


def parse_assignment(assignment: str) -> tuple[KeyPath, Any]:
    """Split `dotted.path=value`; the value is read as strict YAML. Raises DescriptionError."""
    name, equals, text = assignment.partition("=")
    place = f"--set {assignment}"
    if not equals or not name.strip():
        raise DescriptionError("expected dotted.path=value", place)
    path = key_path(name)
    if not path:
        raise DescriptionError("expected dotted.path=value", place)
    try:
        value = _read(text, place)[0] if text.strip() else ""
    except DescriptionError as error:
        raise DescriptionError(error.message, place, None, dotted(path)) from None
    return path, value


class Strict(BaseModel):
    """Base of every spec: frozen, no unknown keys (answered with the nearest one), no coercion."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)
    renamed: ClassVar[dict[str, str]] = {}
    """A key of earlier versions -> the key that it is now."""

    @model_validator(mode="wrap")
    @classmethod
    def _known_keys(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(data, cls):
            return data
        if not isinstance(data, dict):
            keys = ", ".join(cls.model_fields)
            raise PydanticCustomError(
                "not_a_mapping",
                "expected a mapping with keys {keys}; got {got}",
                {"keys": keys, "got": repr(data)},
            )
        names = {f.alias or name for name, f in cls.model_fields.items()} | set(cls.model_fields)
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


def _without_echoes(items: list[ErrorDetails]) -> list[ErrorDetails]:
    """A misspelt required key is also a missing one: report it once."""
    meant = {
        (*item["loc"][:-1], nearest_name(item["ctx"]["key"], item["ctx"]["known"]))
        for item in items
        if item["type"] == "unknown_key"
    }
    return [item for item in items if item["type"] != "missing" or item["loc"] not in meant]


def _mistakes(document: Document, item: Any) -> list[DescriptionError]:
    path: KeyPath = tuple(item["loc"])
    context = item.get("ctx") or {}
    if item["type"] == "unknown_key":
        now = context["now"]
        hint = nearest(context["key"], context["known"]) if now is None else f"it is {now!r} now"
        message = f"unknown key; {hint}"
        return [document.error(message, path)]
    # pydantic adds the names of union members to a location: keep what the document knows
    known: KeyPath = ()
    inside: Any = document.data
    for part in path:
        there = _has(inside, part)
        if known and not isinstance(inside, (dict, list, NoneType)):
            break  # nothing lies inside a plain value
        if (
            there
            or (*known, part) in document.marks
            or (isinstance(part, str) and part == path[-1])
        ):
            known = (*known, part)
            inside = inside[part] if there else None
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "missing":
        return [document.error(f"key {path[-1]!r} is missing", path)]
    if not path and (stated := _STATED_PATH.match(message)):
        # a whole-document check names its place at the head of its message
        path = known = tuple(
            int(p) if p.isdigit() else p for p in re.split(r"[.\[\]]+", stated.group(1)) if p
        )
        message = stated.group(2)
    value = item.get("input")
    if item["type"] not in ("value_error", "not_a_mapping") and not isinstance(value, (dict, list)):
        message = f"{message}; got {value!r}"
    return [document.error(message, known or path)]


def _has(value: Any, part: str | int) -> bool:
    if isinstance(value, dict):
        return part in value
    return isinstance(value, list) and isinstance(part, int) and part < len(value)


class _Bounded(Composer):
    """Composes nodes; documents that are nested or expanded without bound are refused."""

    peek_event: Any

    def begin(self) -> None:
        self.depth = self.written = self.expanded = 0
        self.open: set[yaml.Node] = set()
        """The collections that the node being converted is in."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.written += 1
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(None, None, f"nested over {_MAX_DEPTH} deep", mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def enter(self, node: yaml.Node) -> str | None:
        """Count a node that is converted; what is wrong with it, if anything."""
        self.expanded += 1
        if node in self.open:
            return "an alias stands inside what it names; expected a value without itself in it"
        if self.expanded > self.written + _MAX_ALIASED:
            return f"aliases expand to more than {_MAX_ALIASED:,} values; expected fewer"
        return None


class _Reader(_Bounded, yaml.SafeLoader):
    """By PyYAML's parser, whose words on what is not YAML reach the user."""

    def __init__(self, text: str) -> None:
        yaml.SafeLoader.__init__(self, text)
        self.begin()


class _FastReader(_Bounded, _LIBYAML):
    """By libyaml's, several times as fast; what it cannot read is read again by the other."""

    def __init__(self, text: str) -> None:
        _LIBYAML.__init__(self, text)
        Composer.__init__(self)
        self.begin()


def _scalar(node: yaml.ScalarNode, reader: _Reader, name: str, path: KeyPath) -> Any:
    text = node.value
    line = node.start_mark.line + 1
    if not node.style:

        def refuse(why: str) -> DescriptionError:
            return DescriptionError(why, name, line, dotted(path))

        if _EXPONENT.match(text):
            raise refuse(f"{text!r} is not a number in YAML; write it out or as a quantity")
        if _OCTAL.match(text):
            raise refuse(f"{text!r} would read as octal; write it without the leading zero")
        if _SEXAGESIMAL.match(text):
            raise refuse(f"{text!r} would read as base 60; put quotes around it")
        if text.lower() in _YAML11_BOOL:
            raise refuse(f"{text!r} is ambiguous; write true or false, or put quotes around it")
    try:
        return reader.construct_object(node)
    except (yaml.YAMLError, ValueError) as error:
        raise DescriptionError(str(error), name, line, dotted(path)) from None


def _convert(node: yaml.Node, reader: _Reader, name: str, path: KeyPath, out: Document) -> Any:
    out.marks[path] = Mark(name, node.start_mark.line + 1)
    if wrong := reader.enter(node):
        raise DescriptionError(wrong, name, node.start_mark.line + 1, dotted(path))
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node, reader, name, path)
    reader.open.add(node)
    try:
        if isinstance(node, yaml.MappingNode):
            return _mapping(node, reader, name, path, out)
        items = enumerate(node.value)
        return [_convert(item, reader, name, (*path, i), out) for i, item in items]
    finally:
        reader.open.remove(node)


def _mapping(
    node: yaml.MappingNode, reader: _Reader, name: str, path: KeyPath, out: Document
) -> Any:
    keys: dict[Any, int] = {}
    for key_node, _ in node.value:
        key, line = key_node.value, key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise DescriptionError("a key must be a plain word", name, line, dotted(path))
        if key in keys:
            raise DescriptionError(
                f"duplicate key, first given on line {keys[key]}", name, line, dotted((*path, key))
            )
        keys[key] = line
    if "value" in keys and set(keys) <= _SOURCE_KEYS and len(keys) > 1:
        return _sourced(node, reader, name, path, out)
    if {"value", "source"} <= set(keys):
        stray = sorted(set(keys) - _SOURCE_KEYS)[0]
        raise DescriptionError(
            f"unknown key {stray!r} beside value; quote a text that holds a comma",
            name, keys[stray], dotted(path),
        )  # fmt: skip
    result = {}
    for key_node, value_node in node.value:
        key = str(key_node.value)
        result[key] = _convert(value_node, reader, name, (*path, key), out)
        out.marks[(*path, key)] = Mark(name, key_node.start_mark.line + 1)
    return result


def _sourced(
    node: yaml.MappingNode, reader: _Reader, name: str, path: KeyPath, out: Document
) -> Any:
    parts = {str(k.value): v for k, v in node.value}
    scratch = Document({}, name)
    value = _convert(parts.pop("value"), reader, name, path, out)
    read = {key: _convert(v, reader, name, path, scratch) for key, v in parts.items()}
    source = read.get("source", [])
    out.provenance[path] = Provenance(
        value,
        tuple(map(str, source)) if isinstance(source, list) else (str(source),),
        read.get("confidence"),
        read.get("note"),
    )
    return value


def _read(text: str, name: str) -> tuple[Any, Document]:
    if "\t" not in text:  # libyaml takes tabs where PyYAML refuses them
        with suppress(yaml.YAMLError, UnicodeEncodeError, DescriptionError):
            return _read_by(_FastReader, text, name)
    try:
        return _read_by(_Reader, text, name)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = None if mark is None else mark.line + 1
        raise DescriptionError(f"not YAML: {error.problem}", name, line) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise DescriptionError(f"not YAML: {error.reason}", name, line) from None


def _read_by(kind: type[_Reader] | type[_FastReader], text: str, name: str) -> tuple[Any, Document]:
    out = Document({}, name, digest=hashlib.sha256(text.encode()).hexdigest())
    reader = kind(text)
    node = reader.get_single_node()
    return None if node is None else _convert(node, reader, name, (), out), out


def loads(text: str, name: str = "<text>") -> Document:
    """Read one YAML mapping from `text`. Raises DescriptionError with `name` and the line."""
    known = _mapping_read(text, name)
    return replace(
        known, data=deepcopy(known.data), marks={**known.marks}, provenance={**known.provenance}
    )


@lru_cache(maxsize=256)
def _mapping_read(text: str, name: str) -> Document:
    """See `loads`. A sweep asks for the same files for every point, and parsing is slow."""
    value, document = _read(text, name)
    if not isinstance(value, dict):
        raise DescriptionError("expected a mapping of keys to values", name, 1)
    document.data = value
    return document


def load(path: str | Path) -> Document:
    """Read one YAML file. Raises DescriptionError (missing, unreadable, not UTF-8, not strict
    YAML)."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DescriptionError("no such file", file) from None
    except IsADirectoryError:
        raise DescriptionError("is a directory; expected a YAML file", file) from None
    except UnicodeDecodeError as error:
        raise DescriptionError(f"not UTF-8 text (byte {error.start})", file) from None
    except OSError as error:
        raise DescriptionError(f"cannot be read: {error.strerror}", file) from None
    return loads(text, str(file))


def names(kind: str) -> list[str]:
    """The shipped descriptions of one kind (a folder of the library), sorted."""
    return sorted(file.stem for file in (LIBRARY / kind).glob("*.yaml"))


def find(kind: str, name_or_path: str, relative_to: str | Path | None = None) -> Path:
    """The file of a shipped description (`lpddr5-6400-x16`) or of the user's own (a path).

    A path is tried as it stands, then beside the file that names it (`relative_to`). Raises
    DescriptionError with the nearest shipped name.
    """
    looks_like_path = "/" in name_or_path or name_or_path.endswith((".yaml", ".yml"))
    if not looks_like_path:
        shipped = LIBRARY / kind / f"{name_or_path}.yaml"
        if _is_file(shipped):
            return shipped
    candidates = [Path(name_or_path)]
    if relative_to is not None:
        candidates.append(Path(relative_to).parent / name_or_path)
    for candidate in candidates:
        if _is_file(candidate) and (looks_like_path or candidate.suffix):
            return candidate
    if looks_like_path:
        raise DescriptionError("no such file", name_or_path)
    hint = elsewhere(name_or_path) or nearest(name_or_path, names(kind))
    raise DescriptionError(f"no shipped {_singular(kind)} {name_or_path!r}; {hint}")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long
        return False


def elsewhere(name: str) -> str:
    """What a shipped name is, in words; nothing where there is no such one."""
    kinds = [_singular(kind) for kind in FOLDERS if name in names(kind)]
    return f"it is a shipped {' and '.join(kinds)}" if kinds else ""


def _singular(kind: str) -> str:
    return kind.removesuffix("ies") + "y" if kind.endswith("ies") else kind.removesuffix("s")

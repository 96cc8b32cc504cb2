"""Strict YAML: text -> `Document`, with the place and the source of every value.

PyYAML's surprises are refused instead of guessed at: duplicate keys, `1e9` (a string to PyYAML),
`010` (octal), `12:30` (sexagesimal), `yes`/`no`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import date
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

from yaml.composer import Composer

import yaml
from hwmodel.description.description import (
    DescriptionError,
    Document,
    KeyPath,
    Mark,
    Provenance,
    dotted,
    key_path,
    nearest,
)
from hwmodel.description.files import read_text

_LIBYAML: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WITHOUT_PLACE = ["assumed", "computed"]
"""What a value may have for a source that is not declared."""
_SOURCE_KEYS = {"value", "source", "confidence", "note", "alternatives"}
_EXPONENT = re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
_OCTAL = re.compile(r"^[-+]?0[0-9_]+$")
_SEXAGESIMAL = re.compile(r"^[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?$")
_MAX_DEPTH = 50
"""Levels of nested mappings and lists; what ships has nine at most."""
_MAX_ALIASED = 100_000
"""Values that aliases may repeat."""
_YAML11_BOOL = {"yes", "no", "on", "off", "y", "n"}


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
        found = reader.construct_object(node)
    except (yaml.YAMLError, ValueError) as error:
        raise DescriptionError(str(error), name, line, dotted(path)) from None
    if isinstance(found, date):
        return text
    if not isinstance(found, str | int | float | bool | None):
        wanted = "expected text, a number, true, false or null"
        raise DescriptionError(f"{wanted}; got {type(found).__name__}", name, line, dotted(path))
    return found


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
            name,
            keys[stray],
            dotted(path),
        )
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
        known, data=_copied(known.data), marks={**known.marks}, provenance={**known.provenance}
    )


def _copied(value: Any) -> Any:
    """What YAML reads, with mappings and lists of its own."""
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value


@lru_cache(maxsize=256)
def _mapping_read(text: str, name: str) -> Document:
    """See `loads`. A sweep asks for the same files for every point, and parsing is slow."""
    value, document = _read(text, name)
    if not isinstance(value, dict):
        raise DescriptionError("expected a mapping of keys to values", name, 1)
    document.data = value
    _require_declared(document)
    return document


def _require_declared(document: Document) -> None:
    """Raises DescriptionError for a source that a document with `sources` does not declare (one
    that is based on another may name those of the other), and for what is meant to be an
    assumption and would pass for a source."""
    declared = document.data.get("sources")
    whole = isinstance(declared, dict) and "based_on" not in document.data
    refuse_sources(document, declared if isinstance(declared, dict) else (), whole)


def refuse_sources(document: Document, declared: Iterable[str], whole: bool = True) -> None:
    """Raises DescriptionError for a source that is neither among these nor needs no declaration;
    unless they are `whole`, only for one that would pass for these."""
    known = [*_WITHOUT_PLACE, *declared]
    for path, provenance in document.provenance.items():
        for source in set(provenance.source).difference(known):
            if whole or get_close_matches(source.lower(), _WITHOUT_PLACE, cutoff=0.85):
                message = f"no source {source!r} under sources; {nearest(source, known)}"
                raise document.error(message, path)


def load(path: str | Path) -> Document:
    """Read one YAML file. Raises DescriptionError (missing, unreadable, not UTF-8, not strict
    YAML)."""
    file = Path(path)
    try:
        text = read_text(file)
    except FileNotFoundError:
        raise DescriptionError("no such file", file) from None
    except IsADirectoryError:
        raise DescriptionError("is a directory; expected a YAML file", file) from None
    except UnicodeDecodeError as error:
        raise DescriptionError(f"not UTF-8 text (byte {error.start})", file) from None
    except OSError as error:
        raise DescriptionError(f"cannot be read: {error.strerror}", file) from None
    return loads(text, str(file))


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


def override(document: Document, assignment: str) -> KeyPath:
    """Apply one `dotted.path=value` (the value is YAML) and return its path.

    Raises DescriptionError if it does not read as an assignment.
    """
    path, value = parse_assignment(assignment)
    document.put(path, value, Mark(f"--set {assignment}"))
    return path

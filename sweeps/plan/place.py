"""Where a mistake is, in the user's terms: paths as he would type them, and his own overrides."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hwmodel.description.description import DescriptionError, DescriptionErrors, Document, KeyPath
from hwmodel.description.library import LIBRARY

_SET = "--set "


class Override(NamedTuple):
    """A path that the description of a run gives, beside its base."""

    path: str
    at: KeyPath
    values: Sequence[KeyPath]
    """Where its values stand."""


def shortened(text: str) -> str:
    """A message whose files are relative to this folder, and shipped ones to the library."""
    for folder in (str(LIBRARY), os.getcwd()):
        if not any(folder in argument for argument in sys.argv[1:]):
            text = text.replace(folder.rstrip(os.sep) + os.sep, "")
    return text


def in_sweep(
    error: DescriptionError, document: Document, key: str, places: Iterable[Override]
) -> DescriptionError:
    """A mistake in `device`, `model` or `workload`, or in an override of it, where the run's
    document gives it: at one of the places beside its base, else there."""
    places = list(places)
    if isinstance(error, DescriptionErrors):
        return DescriptionErrors([in_sweep(each, document, key, places) for each in error.errors])
    if error.file is None:
        values = [each for place in places if place.path == key for each in place.values]
        named = (at for at in values if repr(document.get(at)) in error.message)
        placed = document.error(error.message, next(named, ("base", key)))
        return placed if placed.line else error  # what was typed is in the message
    if not error.file.startswith(_SET):
        return _below_a_name(error, document, key, places) or error
    path = f"{key}_set.{error.file.removeprefix(_SET).partition('=')[0]}"
    given = (place.at for place in places if f"{path}.".startswith(f"{place.path}."))
    mark = document.mark(next(given, ("base", *path.split("."))))
    path = f"{key}_set.{error.path}" if error.path else f"{key}_set"
    return DescriptionError(error.message, mark.file, mark.line, path)


def _below_a_name(
    error: DescriptionError, document: Document, key: str, places: Iterable[Override]
) -> DescriptionError | None:
    """A mistake in a shipped file where it is the run's that gives a path below a value that is no
    group, such as `device_set.memory.organization.banks`; None where it gives none."""
    head = f"{key}_set"
    base = document.get(("base", head))
    own = base if isinstance(base, dict) else {}
    given = [*places, *(Override(f"{head}.{path}", ("base", head, path), []) for path in own)]
    begin = f"{head}.{error.path}."
    for place in given if error.path else []:
        if place.path.startswith(begin):
            mark, rest = document.mark(place.at), place.path.removeprefix(begin)
            why = f"{error.path} is one value, not a group"
            if error.path == "memory":
                why = f"memory names a description; did you mean {head}.{rest}?"
            return DescriptionError(why, mark.file, mark.line, place.path)
    return None


def in_variant(error: DescriptionError, document: Document) -> DescriptionError:
    """A mistake at a line of a variant, with the variant's name."""
    if isinstance(error, DescriptionErrors):
        return DescriptionErrors([in_variant(each, document) for each in error.errors])
    names = {
        str(path[1]) for path, mark in document.marks.items()
        if path[:1] == ("variants",) and len(path) > 1
        and mark.line and (mark.file, mark.line) == (error.file, error.line)
    }  # fmt: skip
    if len(names) != 1 or error.path.startswith("variants."):
        return error
    why = f"{error.message} (variant {names.pop()})"
    return DescriptionError(why, error.file, error.line, error.path)

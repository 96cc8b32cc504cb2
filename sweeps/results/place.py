"""Where a mistake is, in the user's terms: paths as he would type them, and his own overrides."""

from __future__ import annotations

import os
import sys

from hwmodel.description.description import (
    LIBRARY,
    DescriptionError,
    DescriptionErrors,
    Document,
    KeyPath,
)

_SET = "--set "


def shortened(text: str) -> str:
    """A message whose files are relative to this folder, and shipped ones to the library."""
    for folder in (str(LIBRARY), os.getcwd()):
        if not any(folder in argument for argument in sys.argv[1:]):
            text = text.replace(folder.rstrip(os.sep) + os.sep, "")
    return text


def in_sweep(error: DescriptionError, sweep: Document, key: str) -> DescriptionError:
    """A mistake in an override of `device`, `model` or `workload`, where the sweep gives it."""
    if isinstance(error, DescriptionErrors):
        return DescriptionErrors([in_sweep(each, sweep, key) for each in error.errors])
    if error.file is None or not error.file.startswith(_SET):
        return error
    keys = error.file.removeprefix(_SET).partition("=")[0].split(".")
    mark = sweep.mark(_given(sweep, f"{key}_set.{'.'.join(keys)}"))
    path = f"{key}_set.{error.path}" if error.path else f"{key}_set"
    return DescriptionError(error.message, mark.file, mark.line, path)


def _given(sweep: Document, path: str) -> KeyPath:
    """Path of an override: an axis, a parameter or a change that holds it, else in the base."""
    for group in ("axes", "space"):
        for each in sweep.data.get(group, {}):
            if f"{path}.".startswith(f"{each}."):
                return (group, each)
    beside: list[tuple[KeyPath, str]] = [
        (("changes", name, each), each)
        for name, overrides in sweep.data.get("changes", {}).items()
        for each in overrides
    ]
    for name, parameter in sweep.data.get("break_even", {}).items():
        beside.append((("break_even", name, "path"), parameter["path"]))
        beside += [(("break_even", name, "given", p), p) for p in parameter.get("given", {})]
    for place, each in beside:
        if f"{path}.".startswith(f"{each}."):
            return place
    return ("base", *path.split("."))

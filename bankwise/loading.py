"""A description of whichever kind, by its name or by the `kind` that it states."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwmodel.description.description import DescriptionError, nearest
from hwmodel.description.library import elsewhere, find, names
from hwmodel.description.yaml_reader import load
from hwmodel.specs.device import Device, device_names, load_device
from sweeps.plan.sweep import Given, load_sweep
from sweeps.plan.sweep_spec import Sweep

if TYPE_CHECKING:
    from sweeps.study.study_spec import Study


def load_any(given: Given, overrides: list[str]) -> Sweep | Study | Device:
    """A sweep, a study or a device. Raises DescriptionError."""
    kind = _kind(given)
    if kind == "sweep":
        return load_sweep(given, overrides)
    if kind == "study":
        from sweeps.study.study_spec import load_study

        return load_study(given, overrides)
    if isinstance(given, Mapping):
        raise DescriptionError(f"expected kind: sweep or study; got {kind!r}", "mapping")
    return load_device(str(given), overrides)


def _kind(given: Given) -> Any:
    """What it says it is; None of a device that ships."""
    if isinstance(given, Mapping):
        return given.get("kind")
    name = str(given)
    for kind, folder in (("sweep", "sweeps"), ("study", "studies")):
        if name in names(folder):
            return kind
    if name in device_names():
        return None
    if isinstance(given, Path) or "/" in name or name.endswith((".yaml", ".yml")):
        return load(find("sweeps", name)).data.get("kind")
    known = [*names("sweeps"), *names("studies"), *device_names()]
    hint = elsewhere(name) or nearest(name, known)
    raise DescriptionError(f"no shipped sweep, study or device {name!r}; {hint}")

"""What `fit` is asked: of which devices and models, and which requests in which formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwmodel.description.description import DescriptionError, Document, nearest
from hwmodel.description.library import names
from hwmodel.description.yaml_reader import load
from hwmodel.specs.device import Device, device_names, load_device
from hwmodel.specs.transformer import TransformerSpec, load_model
from sweeps.ask.as_one import as_one
from sweeps.ask.fit import LIMIT, FitQuestion


def question_of(given: Mapping[str, Any]) -> FitQuestion:
    """The question, of what is given by the keys of `FitQuestion`; None: as by default. Raises
    DescriptionError."""
    data = {key: value for key, value in given.items() if value is not None}
    data.setdefault("limit", max(LIMIT, data.get("output", 0)))
    return Document(data, "fit").build(FitQuestion)


def of_library(
    named: list[str], overrides: list[str]
) -> tuple[list[Device], list[TransformerSpec]]:  # fmt: skip
    """The devices and the models that are named, in any order; all of the kind that is not. Raises
    DescriptionError."""
    shipped = dict.fromkeys(names("models"), "model")
    shipped |= dict.fromkeys(device_names(), "device")
    given: dict[str, str] = {}
    for name in named:
        kind = shipped.get(name)
        if kind is None and not name.endswith((".yaml", ".yml")):
            hint = nearest(name, list(shipped))
            hint += "" if hint.endswith("?") else "; bankwise list devices lists them"
            raise DescriptionError(f"no shipped device or model; {hint}", name)
        kind = kind or ("model" if load(name).data.get("kind") == "model" else "device")
        if kind in given:
            raise DescriptionError(f"a second {kind}, beside {given[kind]}", name)
        given[kind] = name
    if overrides and "device" not in given:
        raise DescriptionError("needs a DEVICE, whose description it overrides", "--set")
    chosen = [given["device"]] if "device" in given else names("accelerators")
    devices = [as_one(load_device(name, overrides)) for name in chosen]
    if devices[0].accelerator is None:
        raise DescriptionError("is a memory; a model needs an accelerator", devices[0].name)
    models = [given["model"]] if "model" in given else names("models")
    return devices, [load_model(name) for name in models]

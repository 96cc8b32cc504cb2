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
    devices, models = sorted_out(named)
    if overrides and not devices:
        raise DescriptionError("needs a DEVICE, whose description it overrides", "--set")
    cards = [card_of(name, overrides) for name in devices or names("accelerators")]
    return cards, [load_model(name) for name in models or names("models")]


def sorted_out(named: list[str]) -> tuple[list[str], list[str]]:
    """(devices, models) among names and files. Raises DescriptionError for what is neither."""
    shipped = dict.fromkeys(names("models"), "model")
    shipped |= dict.fromkeys(device_names(), "device")
    given: dict[str, list[str]] = {"device": [], "model": []}
    for name in dict.fromkeys(named):
        kind = shipped.get(name)
        if kind is None and not name.endswith((".yaml", ".yml")):
            hint = nearest(name, list(shipped))
            hint += "" if hint.endswith("?") else "; bankwise list devices lists them"
            raise DescriptionError(f"no shipped device or model; {hint}", name)
        kind = kind or ("model" if load(name).data.get("kind") == "model" else "device")
        given[kind].append(name)
    return given["device"], given["model"]


def card_of(name: str, overrides: list[str]) -> Device:
    """An accelerator, its memories as one. Raises DescriptionError for a memory."""
    device = as_one(load_device(name, overrides))
    if device.accelerator is None:
        raise DescriptionError("is a memory; a model needs an accelerator", device.name)
    return device

"""What of a difference between devices is software: a step of each under the kernels of all.

A device has a class of kernels, which says what programs reach on it. Where the devices of a run
differ in class, some of what lies between them is of programs and not of memories or FLOPs. Each is
therefore put under the class of every other, by the closed forms of docs/memory-time.md: no run is
made twice for it. What stays the device's own are its `derate` and its efficiencies of FLOPs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.memory.routing import Routing
from policies.memory.step import StepModel
from policies.serving.rates import closed_form, decode_rate, prefill_rate
from policies.serving.serving_spec import ServingSpec, model_of_a_card
from sweeps.analyse.variants import CASE
from sweeps.plan.experiment import Described, device_of, model_of

BATCH, PROMPT, OUTPUT = 32, 1000, 300
"""Requests that decode, and tokens of each, where devices are put beside one another (assumed)."""


def software_of(named: Sequence[tuple[str, Described]]) -> list[dict[str, Any]]:
    """A record a device, by what it is called and an experiment on it: its class of kernels and
    program, derate and efficiencies, and `by_class` tokens a second of decode and prefill under
    each class that is there. Nothing where all have one class, or are not served on."""
    devices: dict[str, tuple[str, Described, Device]] = {}
    for name, experiment in named:
        device = device_of(experiment)
        if device.accelerator is not None and hasattr(experiment, "serving"):
            devices.setdefault(device.digest, (name, experiment, device))
    classes = list(dict.fromkeys(_class(device) for *_, device in devices.values()))
    if len(classes) < 2:
        return []
    return [
        {"device": name, **programs_of(device), "by_class": dict(_rates(experiment, classes))}
        for name, experiment, device in devices.values()
    ]


def called(overrides: dict[str, Any], experiment: Described) -> str:
    """What the device of a point is called: by its case, or as it is named."""
    return str(overrides.get(CASE) or device_of(experiment).name)


def programs_of(device: Device) -> dict[str, Any]:
    """What a device's description says of programs: class, program, derate, efficiencies."""
    assert device.accelerator is not None
    law, compute = device.accelerator.kernels, device.accelerator.compute
    return {
        "class": law.of, "program": law.program, "derate": device.derate,
        "weights": law.weights, "kv": law.kv, "prefill_efficiency": compute.prefill_efficiency,
        "decode_efficiency": compute.decode_efficiency, "overlap": compute.overlap,
    }  # fmt: skip


def _class(device: Device) -> str:
    assert device.accelerator is not None
    return device.accelerator.kernels.of


def _rates(experiment: Described, classes: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """(class, tokens a second): under its own with all that the device says of its kernels."""
    own = _class(device_of(experiment))
    serving: ServingSpec = getattr(experiment, "serving")  # noqa: B009 - only those that serve
    for name in classes:
        kernels = {} if name == own else {"kernels": {"class": name}}
        bare = {k: v for k, v in experiment.device_set.items() if not k.startswith("kernels")}
        settings = {**bare, **kernels} if kernels else experiment.device_set
        changed = experiment.model_copy(update={"device_set": settings})
        try:
            yield name, _tokens_per_s(device_of(changed), model_of(experiment), serving)
        except DescriptionError:  # a feature that these closed forms do not have
            yield name, None


def _tokens_per_s(device: Device, model: TransformerSpec, serving: ServingSpec) -> dict[str, float]:
    part = model_of_a_card(serving, model)
    routing = None if part.experts is None else Routing(part.experts, serving.routing, 0)
    steps = StepModel(device, part, serving.tensor_parallel, routing=routing)
    efficiency, sizes = closed_form(device), (PROMPT, OUTPUT)
    budget = serving.on_device(device, model).engine.token_budget(PROMPT + OUTPUT)
    decode = decode_rate(steps, BATCH, sizes, efficiency, False)
    prefill = prefill_rate(steps, PROMPT, min(budget, PROMPT), efficiency)
    return {
        "decode_tokens_per_s": float(np.round(decode.tokens_per_s, 3)),
        "prefill_tokens_per_s": float(np.round(prefill.tokens_per_s, 3)),
    }

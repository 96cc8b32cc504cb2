"""`bankwise DEVICE`: what can be asked of a device, in commands to paste."""

from __future__ import annotations

from contextlib import suppress

from hwmodel.description.description import DescriptionError, nearest, nearest_name
from hwmodel.description.library import elsewhere, find, names
from hwmodel.description.yaml_reader import load
from hwmodel.specs.device import Device, device_names, load_device
from hwmodel.specs.transformer import load_model
from sweeps.ask.fit import FitQuestion, Misfit, fit
from sweeps.study.by_device import MODELS, assignments

STUDY = "odma"
"""Whose model, or what is served instead, `quickstart` is asked with: both serve the same."""


def what_it_is(word: str, verbs: list[str]) -> str:
    """`device`, for a shipped one or the file of one. Raises DescriptionError for any other word,
    with what it is, or the nearest verb or device."""
    if word in device_names():
        return "device"
    if word.endswith((".yaml", ".yml")):
        kind = load(find("accelerators", word)).data.get("kind")
        if kind in ("accelerator", "memory"):
            return "device"
        if kind in ("sweep", "study"):
            raise DescriptionError(f"is a {kind}: bankwise run {word}", word)
        raise DescriptionError(f"is no verb; a {kind}: bankwise check {word}", word)
    if word in [*names("sweeps"), *names("studies")]:
        raise DescriptionError(f"no verb {word!r}; {elsewhere(word)}: bankwise run {word}")
    if word in names("models"):
        raise DescriptionError(f"no verb {word!r}; {elsewhere(word)}: bankwise fit {word}")
    if not (hint := elsewhere(word)):
        near = nearest_name(word, [*verbs, *device_names()])
        run = nearest_name(word, [*names("sweeps"), *names("studies")])
        if near is None and run is not None:
            raise DescriptionError(f"no verb or device {word!r}; did you mean bankwise run {run}?")
        hint = nearest(word, [*verbs, *device_names()])
    raise DescriptionError(f"no verb or device {word!r}; {hint}")


def show_questions(name: str) -> None:
    """Print what a device is, and what can be asked of it. Raises DescriptionError where its
    description is at fault."""
    device = load_device(name)
    spec = device.accelerator or device.memory
    print(f"{spec.name}: {spec.summary}\n")
    rows = _of_memory(name) if device.accelerator is None else _of_accelerator(name, device)
    for command, why in rows:
        print(f"  # {why}\n  {command}")


def _of_memory(name: str) -> list[tuple[str, str]]:
    return [
        (f"bankwise memory {name}", "what one channel reaches, by access pattern"),
        (f"bankwise memory latency {name}", "read latency under load"),
        (f"bankwise replay {name} trace.txt", "your addresses, `R 0x1f40` a line"),
        (f"bankwise check {name} --assumed", "which of its numbers have no public source"),
    ]


def _of_accelerator(name: str, device: Device) -> list[tuple[str, str]]:
    rows = [(f"bankwise fit {name}", "every model: does it fit, and how fast")]
    if device.given is None:
        rows.append((f"bankwise memory {name}", "what its memory reaches, by access pattern"))
    with suppress(DescriptionError):  # no model of those that are tried fits
        sets = "".join(f" --set {each}" for each in assignments(STUDY, name, ()))
        why = "which way of laying out the KV serves most, and why"
        rows.append((f"bankwise run quickstart{sets}", why))
    fits = (
        each
        for each in MODELS
        if not isinstance(fit(device, load_model(each), FitQuestion()), Misfit)
    )
    if (model := next(fits, None)) is not None:
        rows.append((
            f"bankwise size settings {name} --model {model} --workload sharegpt"
            " --slo ttft=2s,tpot=100ms --dry-run", "which settings of a server; without --dry-run",
        ))  # fmt: skip
    return rows

"""A description calibrated on a server's log, and validated on the part of it that was not used.

A log of requests is also simulated, so that what a stretch of steps leaves out (requests that were
preempted, prompts computed again) is left out of both: the numbers are moved until the stretches of
the simulation fit as those of the log do (indirect inference, Gourieroux, Monfort and Renault
1993). A log of counters is fitted as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hwmodel.description.description import DescriptionError, Document, Mark
from hwmodel.description.yaml_reader import parse_assignment
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.requests.logged_requests import LoggedRequests
from policies.requests.request_log import LoggedTimes, read_request_log
from policies.requests.trace_formats import read_text
from policies.serving.building import kv_region
from policies.serving.measured_server import MeasuredServer, ServerSpec
from policies.serving.rates import closed_form_share
from policies.serving.serving_spec import model_of_a_card
from policies.serving.step_windows import StepWindow, of_requests, read_counters
from sweeps.analyse.statistics import Interval
from sweeps.ask.calibration_fit import (
    NUMBERS,
    LogCalibration,
    StepFit,
    Undetermined,
    fitted,
    with_numbers,
)

PART = 0.5
"""Share of the log, the first in time, that is fitted; the rest validates."""
ROUNDS = 3
"""Simulations by which the numbers are moved (assumed): the last moves them by less than 1 %."""
FIGURES = {
    "TTFT mean, s": ("ttft_s", 1.0), "TPOT mean, ms": ("tpot_s", 1e3),
    "latency mean, s": ("latency_s", 1.0),
}  # fmt: skip


@dataclass(frozen=True)
class Validated:
    """A figure of the part that was not fitted: measured, as described, as calibrated."""

    what: str
    measured: float
    before: float
    after: float


@dataclass(frozen=True)
class Calibrated:
    """What was found, and how well it holds on the rest of the log."""

    server: MeasuredServer
    log: Path
    fit: LogCalibration
    described: dict[str, float]
    windows: tuple[int, int]
    """Stretches that were fitted, and that were not."""
    validated: list[Validated]
    simulated: bool

    def overlay(self) -> dict[str, Any]:
        """The server under these settings, as its YAML: `bankwise validate` takes it."""
        data = deepcopy(self.server.document.data)
        data |= {"name": f"{self.server.spec.name}-calibrated", "log": str(self.log.absolute())}
        data["set"] = dict(data.get("set") or {})
        serving = Document({"serving": data["serving"]}, "overlay")
        for path, value in self.settings().items():
            if path.startswith("serving."):
                serving.put(tuple(path.split(".")), value, Mark("overlay"))
            else:
                data["set"][path] = value
        return data

    def settings(self) -> dict[str, Any]:
        """Path -> value, as `set` and `--set` have them."""
        values = {name: self.fit.values[name] for name in self.fit.numbers}
        return settings_of(self.server, values)


def server_of(log: Path, device: str, model: str, overrides: Iterable[str]) -> MeasuredServer:
    """A server by its settings: `serving.` and a key, others are the device's. Raises
    DescriptionError."""
    data: dict[str, Any] = {
        "kind": "server", "name": log.name.split(".")[0], "device": device, "set": {},
        "summary": f"{model} on {device}, as {log.name} has it", "serving": {"model": model},
        "log": str(log.absolute()),
    }  # fmt: skip
    document = Document(data, "calibrate")
    for assignment in overrides:
        path, value = parse_assignment(assignment)
        if path[0] == "serving":
            document.put(path, value, document.mark(("serving",)))
        else:
            data["set"][".".join(map(str, path))] = value
    load_device(device)
    return MeasuredServer(document.build(ServerSpec), document)


def settings_of(server: MeasuredServer, values: Mapping[str, float]) -> dict[str, Any]:
    """The numbers as the settings of a server: an efficiency of simulated memory is its derate,
    and what is described by size goes with the one number."""
    device, spec = server.case({})
    changed = with_numbers(device, spec, StepFit(device, spec, []).described() | dict(values))
    accelerator = changed.accelerator
    assert accelerator is not None
    paths = {each.name: (each.path, each.unit) for each in NUMBERS}
    found: dict[str, Any] = {}
    for name, value in values.items():
        path, unit = paths[name]
        if name == "indirection" and not server.document.get(("serving", "policy")):
            found["serving.policy.name"] = spec.policy.name
        if name != "efficiency":
            found[path] = f"{value:.4g}{unit}" if unit else _digits(value)
        elif device.given is None:
            derate = value / closed_form_share(device) * device.derate
            found["derate"] = _digits(min(derate, 1.0))
        elif (given := accelerator.given) is not None:
            found["given.efficiency"] = _digits(value)
            if device.given.weights is not None:
                found["given.weights"] = _digits(given.of_weights)
            if given.attention is not None:
                found["given.attention"] = [
                    {"size": f"{each.size}B", "share": _digits(each.share)}
                    for each in given.attention
                ]
        if name == "link" and accelerator.link and accelerator.link.all_reduce is not None:
            found["link.all_reduce"] = [
                {"size": f"{each.size}B", "rate": f"{each.rate / 1e9:.4g}GB/s"}
                for each in accelerator.link.all_reduce
            ]
    return found


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def calibrate(server: MeasuredServer, part: float = PART) -> Calibrated:
    """What the first part of the server's log fixes, held against the rest. Raises
    DescriptionError; Skipped where the log is not here."""
    if (log := server.log()) is None:
        raise DescriptionError("has no log to calibrate on", server.document.file)
    device, spec = server.case({})
    if any((spec.memory.efficiency, spec.memory.weights, spec.memory.attention)):
        raise DescriptionError("serving.memory gives an efficiency; without it one can be found")
    text = read_text(log)
    times = read_request_log(log) if LoggedRequests.known(text) else None
    if times is None:
        resolved, model = spec.on_device(device, load_model(spec.model)), load_model(spec.model)
        slots = kv_region(device, model_of_a_card(resolved, model), resolved).slots
    windows = of_requests(times) if times is not None else read_counters(text, log, slots)
    cut = float(np.quantile([each.end_s for each in windows], part)) if windows else 0.0
    use = [each.end_s <= cut for each in windows]
    fit = StepFit(device, spec, _only(windows, use))
    rest = StepFit(device, spec, _only(windows, [not each for each in use]))
    described = fit.described()

    def settled(names: Sequence[str] | None) -> LogCalibration:
        found = fitted(fit, described, names)
        return found if times is None else _moved(server, found, use)

    found = settled(None)
    found = replace(
        found, undetermined=[_instead(each, found, settled) for each in found.undetermined]
    )
    if times is not None:
        validated = _figures(server, found, times, cut)
    else:
        errors = (100 * rest.error(values) for values in (described, found.values))
        validated = [Validated("median error of a step, %", 0.0, *errors)]
    counts = len(fit.measured), len(rest.measured)
    return Calibrated(server, log, found, described, counts, validated, times is not None)


def _instead(
    left: Undetermined, found: LogCalibration, settled: Callable[[Sequence[str]], LogCalibration]
) -> Undetermined:
    """With what it would be instead of the number that it is not told from."""
    if left.other not in found.numbers:
        return left
    names = [left.name if each == left.other else each for each in found.numbers]
    return left._replace(instead=settled(names).values[left.name])


def _only(windows: Sequence[StepWindow], which: Sequence[bool]) -> list[StepWindow]:
    return [each for each, wanted in zip(windows, which, strict=True) if wanted]


def _simulated(server: MeasuredServer, values: Mapping[str, float]) -> LoggedTimes:
    """The server's requests as the simulation serves them under these numbers."""
    served = server.serve(settings_of(server, values))
    requests, result = served
    return LoggedTimes(
        requests.arrival_s, result.first_token_s, result.finish_s, requests.prompt_tokens,
        requests.output_tokens,
    )  # fmt: skip


def _moved(server: MeasuredServer, found: LogCalibration, use: Sequence[bool]) -> LogCalibration:
    """The numbers at which stretches of the simulation fit as those of the log do."""
    device, spec = server.case({})
    values, names = dict(found.values), list(found.numbers)
    known = {each.name: each for each in NUMBERS}
    for _ in range(ROUNDS if names else 0):
        windows = _only(of_requests(_simulated(server, {n: values[n] for n in names})), use)
        again = fitted(StepFit(device, spec, windows), found.values, names)
        for name in names:
            moved = values[name] * found.values[name] / again.values[name]
            values[name] = min(max(moved, known[name].least), known[name].most)
    intervals = {}
    for name, each in found.numbers.items():
        factor = values[name] / found.values[name]
        ends = (factor * each.mean, factor * each.low, min(factor * each.high, known[name].most))
        intervals[name] = Interval(*ends, each.count)
    return replace(found, numbers=intervals, values=values)


def _figures(
    server: MeasuredServer, found: LogCalibration, times: LoggedTimes, cut: float
) -> list[Validated]:
    """Of the requests that ended after the cut, simulated with all the others."""
    late = times.last_s > cut
    calibrated = {name: found.values[name] for name in found.numbers}
    each = [times, _simulated(server, {}), _simulated(server, calibrated)]
    measured, before, after = (one.only(late).figures() for one in each)
    return [
        Validated(what, *(scale * one[key]["mean"] for one in (measured, before, after)))
        for what, (key, scale) in FIGURES.items()
    ]

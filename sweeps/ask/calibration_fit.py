"""Which numbers of a description a server's log fixes, and how closely.

The mean step of every stretch of the log (`policies.serving.step_windows`) is held against the time
that the model of a step (`policies.memory.step`) gives its batch, context and prompt tokens. Least
squares of the relative errors, with a loss that outliers such as preempted requests do not rule
(soft L1), over the logarithms of the numbers. Intervals: of groups of stretches that follow one
another in time, as neighbours share their errors (sandwich, Liang and Zeger 1986).

A number is taken where the log tells it from those before it in `NUMBERS`; before all of them comes
the one that clearly explains more by itself than they do. One that moves steps as
another does is left as described, and said to be told from it by neither.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.measure.student import t_quantile
from hwmodel.specs.accelerator import AcceleratorSpec
from hwmodel.specs.device import Device
from hwmodel.specs.transformer import load_model
from policies.engines.scheduled_step import Chunk, Step
from policies.memory.routing import Routing
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from policies.requests.requests import FloatArray
from policies.serving.building import kv_region
from policies.serving.rates import closed_form_share
from policies.serving.serving_spec import ServingSpec, model_of_a_card
from policies.serving.step_windows import StepWindow
from sweeps.analyse.statistics import Interval

SLACK = 0.03
"""Relative error beyond which a stretch counts as an outlier rather than squared (assumed)."""
GROUPS = 10
"""Groups of stretches in time (assumed): each some waves of requests long."""
ALIKE = 0.95
"""Correlation of two numbers' errors from which on the log does not tell them apart (assumed)."""
LOOSE = math.log(1.5)
"""Half-width of a logarithm from which on a number is not known (assumed)."""
CLEARLY = 1.25
"""Times the least loss that a number before it in `NUMBERS` may leave (assumed)."""
FLAT = 1e-3
"""Change of steps by a change of a number, both relative, that is none (assumed)."""


class Number(NamedTuple):
    """A number that may be fitted: its path (of the device, or `serving.` and a setting), the
    least and most it may be, the unit it is written in, and what it is described as."""

    name: str
    path: str
    most: float
    unit: str
    of: Callable[[Device, ServingSpec], float]
    least: float = 1e-3


def _step_overhead_us(device: Device, spec: ServingSpec) -> float:
    return float(_accelerator(device).kernels.host) / 1000


def _accelerator(device: Device) -> AcceleratorSpec:
    if device.accelerator is None:
        raise DescriptionError(f"{device.name} is a memory; serving needs an accelerator")
    return device.accelerator


def _link_gbps(device: Device, spec: ServingSpec) -> float:
    assert device.accelerator is not None
    link = device.accelerator.link
    return 0.0 if link is None or spec.tensor_parallel < 2 else link.bandwidth / 1e9


NUMBERS = (
    Number("efficiency", "efficiency", 1.0, "", lambda d, s: closed_form_share(d)),
    Number("prefill", "compute.prefill_efficiency", 1.0, "",
           lambda d, s: _accelerator(d).compute.prefill_efficiency),
    Number("link", "link.bandwidth", 1e4, "GB/s", _link_gbps),
    Number("overhead", "kernels.host", 1e5, "us", _step_overhead_us, 1.0),
    Number("indirection", "serving.policy.indirection", 10.0, "",
           lambda d, s: getattr(s.policy, "indirection", 0.0), 1.0),
)  # fmt: skip
"""In the order in which they are tried; what is left is as described."""
WORDS = {
    "efficiency": "efficiency of memory", "prefill": "efficiency of prefills",
    "link": "bandwidth of the links", "overhead": "overhead of a step",
    "indirection": "indirection of block tables",
}  # fmt: skip


def with_numbers(device: Device, spec: ServingSpec, values: Mapping[str, float]) -> Device:
    """The device under these numbers. Shares and rates by size go with the one number."""
    assert device.accelerator is not None
    accelerator = device.accelerator
    compute = accelerator.compute.model_copy(update={"prefill_efficiency": values["prefill"]})
    kernels = accelerator.kernels.model_copy(update={"host": values["overhead"] * 1000})
    update: dict[str, Any] = {"compute": compute, "kernels": kernels}
    if (given := accelerator.given) is not None:
        times = values["efficiency"] / given.efficiency
        sized = given.attention and [
            each.model_copy(update={"share": min(times * each.share, 1.0)})
            for each in given.attention
        ]
        shares = {"efficiency": values["efficiency"], "attention": sized,
                  "weights": min(times * given.of_weights, 1.0)}  # fmt: skip
        update["given"] = given.model_copy(update=shares)
    if (link := accelerator.link) is not None and values["link"]:
        times = values["link"] / _link_gbps(device, spec)
        rates = link.all_reduce and [
            each.model_copy(update={"rate": times * each.rate}) for each in link.all_reduce
        ]
        direct = link.direct and link.direct.model_copy(
            update={"bandwidth": times * link.direct.bandwidth}
        )
        update["link"] = link.model_copy(update={
            "bandwidth": values["link"] * 1e9, "all_reduce": rates, "direct": direct,
        })  # fmt: skip
    return replace(device, accelerator=accelerator.model_copy(update=update))


class Undetermined(NamedTuple):
    """A number that is left as described: the one it is not told from (none: the log says nothing
    of it), and what it would be instead of that one."""

    name: str
    described: float
    other: str
    instead: float | None = None


@dataclass(frozen=True)
class LogCalibration:
    """What a log fixes. numbers: each one's interval; values: all of them; errors: median relative
    error of a step as described and as fitted."""

    numbers: dict[str, Interval]
    undetermined: list[Undetermined]
    values: dict[str, float]
    before: float
    after: float


class StepFit:
    """The model's mean step of each stretch under any of the numbers."""

    def __init__(self, device: Device, spec: ServingSpec, windows: Sequence[StepWindow]) -> None:
        model = load_model(spec.model)
        spec = spec.on_device(device, model)
        self._device, self._spec, self._windows = device, spec, windows
        self._part = model_of_a_card(spec, model)
        layout = kv_region(device, self._part, spec)
        self._groups = layout.groups
        self.measured = np.array([each.seconds / each.steps for each in windows])
        order = np.argsort([each.end_s for each in windows], kind="stable")
        self.groups = np.empty(len(windows), np.int64)
        self.groups[order] = np.arange(len(windows)) * GROUPS // max(len(windows), 1)
        self._budget = spec.engine.token_budget(spec.engine.max_model_len or model.max_position)

    def described(self) -> dict[str, float]:
        """The numbers as described; 0 where there is none."""
        return {each.name: float(each.of(self._device, self._spec)) for each in NUMBERS}

    def steps(self, values: Mapping[str, float]) -> FloatArray:
        """Seconds, float64 (stretches,)."""
        device = with_numbers(self._device, self._spec, values)
        routing = None
        if self._part.experts is not None:
            routing = Routing(self._part.experts, self._spec.routing, 0)
        model = StepModel(
            device, self._part, self._spec.tensor_parallel,
            values["indirection"] or self._spec.policy.kernel_cost, routing,
            groups=self._groups,
        )  # fmt: skip
        efficiency = Efficiency(*[values["efficiency"]] * 4)
        if device.given is not None:
            efficiency = efficiency._replace(weights=device.given.of_weights)
        return np.array([self._mean(model, efficiency, each) for each in self._windows])

    def error(self, values: Mapping[str, float]) -> float:
        """Median relative error of a step, without its sign."""
        return float(np.median(np.abs(self.steps(values) / self.measured - 1)))

    def _mean(self, model: StepModel, efficiency: Efficiency, window: StepWindow) -> float:
        """Of steps that decode alone and steps with chunks of prompts, as many as these fill."""
        batch = max(round(window.batch), 1)
        chunked = min(math.ceil(window.prompt_tokens / self._budget), window.steps)
        lengths = np.full(batch, int(window.context) // batch)
        step = Step(np.arange(batch), int(window.context), [], [], 0, "kv_memory", lengths=lengths)
        alone = float(model.times(step, 1, efficiency).total_s[0])
        if not chunked:
            return alone
        tokens = max(round(window.prompt_tokens / chunked), 1)
        both = step._replace(chunks=[Chunk(0, 0, tokens, True)])
        share = chunked / window.steps
        return alone + share * (float(model.times(both, 1, efficiency).total_s[0]) - alone)


def fitted(
    fit: StepFit, start: Mapping[str, float], names: Sequence[str] | None = None
) -> LogCalibration:
    """What the stretches fix; names: of the numbers to take, where that is known. Raises
    DescriptionError where the stretches are too few."""
    if (count := len(fit.measured)) < 2 * GROUPS:
        raise DescriptionError(
            f"{count} stretches of steps; expected {2 * GROUPS} or more: a longer log"
        )
    taken: list[str] = list(names or ())
    found = _Solution(fit, start, taken)
    there = [each for each in NUMBERS if start[each.name] and names is None]
    rejected = {each.name: "" for each in there if _flat(fit, start, each)}
    for name in _ordered(fit, start, [n.name for n in there if n.name not in rejected]):
        tried = _Solution(fit, start, [*taken, name])
        if (other := tried.alike(name)) is not None:
            rejected[name] = other
            continue
        taken, found = [*taken, name], tried
    undetermined = [Undetermined(name, start[name], other) for name, other in rejected.items()]
    return LogCalibration(
        {name: found.interval(name) for name in taken}, undetermined, found.values,
        fit.error(start), fit.error(found.values),
    )  # fmt: skip


def _ordered(fit: StepFit, start: Mapping[str, float], names: list[str]) -> list[str]:
    """The names, first the one that clearly explains the log best by itself."""
    alone = {name: _Solution(fit, start, [name]).cost for name in names}
    best = min(alone.values(), default=0.0)
    first = [name for name in names if alone[name] <= CLEARLY * best][:1]
    return [*first, *(name for name in names if name not in first)]


def _flat(fit: StepFit, values: Mapping[str, float], number: Number) -> bool:
    """Whether steps do not depend on a number."""
    step = 1.1
    up = min(values[number.name] * step, number.most)
    up = values[number.name] / step if up == values[number.name] else up
    moved = fit.steps(dict(values) | {number.name: up}) / fit.steps(values) - 1
    return bool(np.abs(moved).max() < FLAT)


class _Solution:
    """The numbers of these names fitted, the others as described."""

    def __init__(self, fit: StepFit, start: Mapping[str, float], names: Sequence[str]) -> None:
        from scipy.optimize import least_squares  # heavy

        self._names, self.values = list(names), dict(start)
        if not names:
            return
        known = {each.name: each for each in NUMBERS}
        low = np.log([known[name].least for name in names])
        high = np.log([known[name].most for name in names])
        first = np.clip(np.log([start[name] for name in names]), low + 1e-3, high - 1e-3)

        def errors(logs: FloatArray) -> FloatArray:
            values = dict(start) | dict(zip(names, np.exp(logs).tolist(), strict=True))
            return np.log(fit.steps(values) / fit.measured)

        found = least_squares(
            errors,
            first,
            bounds=(low, high),
            loss="soft_l1",
            f_scale=SLACK,
            diff_step=1e-3,
            xtol=1e-4,
            ftol=1e-6,
        )
        self.values |= dict(zip(names, np.exp(found.x).tolist(), strict=True))
        self._logs, self.cost = found.x, float(found.cost)
        self._bound = bool(np.any(found.active_mask[-1:]))
        residual = errors(found.x)
        weight = 1 / np.sqrt(1 + (residual / SLACK) ** 2)
        jacobian = np.column_stack([
            (errors(found.x + shift) - errors(found.x - shift)) / 2e-3
            for shift in 1e-3 * np.eye(len(names))
        ])  # fmt: skip
        self._covariance = _sandwich(jacobian, weight, residual, fit.groups)

    def interval(self, name: str) -> Interval:
        """With the 95 % interval."""
        i = self._names.index(name)
        half, mean = self._half(i), float(self._logs[i])
        return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half), GROUPS)

    def _half(self, i: int) -> float:
        return t_quantile(GROUPS - 1) * math.sqrt(max(float(self._covariance[0][i, i]), 0.0))

    def alike(self, name: str) -> str | None:
        """The number that this one, the last, cannot be told apart from; nothing where none is
        alike but the log does not fix it; None where it does."""
        last = len(self._names) - 1
        shape = self._covariance[1]
        others = {
            other: abs(shape[last, i]) / math.sqrt(shape[last, last] * shape[i, i])
            for i, other in enumerate(self._names[:-1])
        }
        most = max(others, key=lambda each: others[each], default="")
        loose = max(self._half(i) for i in range(len(self._names))) > LOOSE
        if most and (others[most] > ALIKE or loose or self._bound):
            return most
        return "" if loose or self._bound else None


def _sandwich(
    jacobian: FloatArray, weight: FloatArray, residual: FloatArray, groups: Any
) -> tuple[FloatArray, FloatArray]:
    """(covariance of the estimates over groups, that of independent errors: its shape alone)."""
    bread = np.asarray(np.linalg.pinv((jacobian * weight[:, None]).T @ jacobian), np.float64)
    scores = np.array([
        (jacobian[groups == group] * (weight * residual)[groups == group, None]).sum(axis=0)
        for group in range(GROUPS)
    ])  # fmt: skip
    meat = scores.T @ scores * GROUPS / (GROUPS - 1)
    spread: FloatArray = bread @ meat @ bread
    return spread, bread

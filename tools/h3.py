"""H3's three ratios: throughput with flash beside HBM over HBM alone, and over watts.

Answers are drawn at once from one context, whose KV a step reads once for all of them. HBM alone
draws as many as it has room for; flash as many as give the highest rate. Rates are those of a step
in the middle of the answers (`StepModel`), at the efficiencies and watts that the sweep
docs/release/h3.yaml describes, where their sources stand. In long runs all of a page of flash is
wanted, so that it is read at its efficiency.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from policies.engines.scheduled_step import Step
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from policies.serving.building import kv_region
from policies.serving.serving_spec import model_of_a_card
from sweeps.plan.experiment import ExperimentSpec, device_of, model_of
from sweeps.plan.sweep import load_sweep

SWEEP = "docs/release/h3.yaml"


class Context(NamedTuple):
    """What many answers have in common."""

    tokens: int
    answer: int
    """Tokens of each (assumed: H3 does not say)."""
    case: str
    """Of the sweep, on whose card it lies."""


CONTEXTS = {
    "1M tokens": Context(1_000_000, 4000, "1M tokens, 64 answers"),
    "10M tokens": Context(10_000_000, 8000, "10M tokens, 2 answers"),
}
MOST = 4096
"""Answers at once at most."""


def ratios() -> dict[str, Any]:
    """By length of the context: answers at once, tokens a second and watts of eight cards with HBM
    alone and with flash, and the ratios of both."""
    found: dict[str, Any] = {}
    points = load_sweep(SWEEP).points
    for name, context in CONTEXTS.items():
        in_hbm, in_flash = (each for each in points if each.overrides["case"] == context.case)
        alone = _best(in_hbm.experiment, context, flash=False)
        both = _best(in_flash.experiment, context, flash=True)
        found[name] = {"HBM alone": alone, "with flash": both} | {
            f"with flash over HBM alone, {what}": _rounded(both[what] / alone[what])
            for what in ("tokens a second", "tokens a joule")
        }
    return found


def _best(experiment: Any, context: Context, flash: bool) -> dict[str, float]:
    """The number of answers at once with the highest rate. flash: or a card that has none."""
    assert isinstance(experiment, ExperimentSpec)
    device, spec = device_of(experiment), experiment.serving
    where = device.memories["flash"] if flash else device
    assert where.given is not None and device.accelerator is not None
    if not flash:
        spec = spec.model_copy(update={"memories": None})
        accelerator = device.accelerator.model_copy(update={"memories": {}})
        device = replace(device, accelerator=accelerator, memories={})
    part = model_of_a_card(spec, model_of(experiment))
    room = kv_region(device, part, spec).slots
    steps = StepModel(device, part, spec.tensor_parallel, even=True)
    share = where.given.efficiency * where.peak_gbps / device.peak_gbps

    def rate(many: int) -> float:
        own = many * context.answer // 2
        step = Step(np.arange(many), context.tokens + own, [], [], 0, "kv_memory")
        # further answers attend to the common context and do not read it again
        step = step._replace(pairs=(many - 1) * context.tokens)
        return many / float(steps.times(step, 1, Efficiency(*[share] * 4)).total_s[0])

    fit = min((room - context.tokens) // context.answer, MOST)
    many = max({fit, *(1 << n for n in range(fit.bit_length()))}, key=rate)
    assert device.draw_watts is not None
    watts, found = spec.tensor_parallel * device.draw_watts, rate(many)
    return {
        "answers": many, "room for tokens": room, "watts": _rounded(watts),
        "tokens a second": _rounded(found), "tokens a joule": _rounded(found / watts),
    }  # fmt: skip


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")

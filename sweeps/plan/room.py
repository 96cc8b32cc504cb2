"""Which change of an experiment would give its model room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hwmodel.description.description import DescriptionError
from policies.serving.building import kv_region
from policies.serving.serving_spec import model_of_a_card
from sweeps.plan.experiment import (
    Described,
    ExperimentSpec,
    Task,
    device_of,
    measure,
    model_of,
    requests_of,
    workload_of,
)

NARROWER = ("int8", "w4a16")
"""Formats of weights that are tried."""
CARDS = (2, 4, 8)
"""Cards that share the model, which are tried where a device has a link."""


def fits_with(experiment: Described) -> dict[str, Any] | None:
    """The first change of the experiment with which its model, and the longest of its requests,
    have room: narrower weights, more cards, or both."""
    if not isinstance(experiment, ExperimentSpec):
        return None
    return next((each for each in _changes(experiment) if _fits(experiment, each)), None)


def _changes(experiment: ExperimentSpec) -> Iterator[dict[str, Any]]:
    serving, model = experiment.serving, model_of(experiment)
    own = model.stored_as(serving.weights, None).weight_bytes
    narrower: list[dict[str, Any]] = [
        {"serving.weights": name}
        for name in NARROWER
        if model.stored_as(name, None).weight_bytes < own
    ]
    accelerator = device_of(experiment).accelerator
    linked = accelerator is not None and accelerator.card_link is not None
    more: list[dict[str, Any]] = [
        {"serving.tensor_parallel": cards}
        for cards in CARDS
        if linked and cards > serving.tensor_parallel
    ]
    yield from narrower
    yield from more
    yield from ({**cards, **weights} for cards in more for weights in narrower)


def _fits(experiment: ExperimentSpec, change: dict[str, Any]) -> bool:
    update = {path.removeprefix("serving."): value for path, value in change.items()}
    serving = experiment.serving.model_copy(update=update)
    changed = experiment.model_copy(update={"serving": serving})
    try:
        small = ExperimentSpec.rehearsals([changed])[-1]  # of memory that is not simulated
        measure(Task(small, 1, None))
        if serving.pools is not None or serving.memories is not None:
            return True
        part = model_of_a_card(serving, model_of(changed))
        room = kv_region(device_of(changed), part, serving).tokens
        requests = requests_of(changed, 1, 1.0, workload_of(changed))
        outputs = serving.engine.cut(requests.output_tokens)
        return room >= int((requests.prompt_tokens + outputs).max())
    except DescriptionError:
        return False

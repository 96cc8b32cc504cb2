"""What a quarter of the largest reservation of a request is of a card's KV memory: the unit of a
safety pool, which the large reservations of most requests fit into."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from policies.allocators.buckets import align_up
from policies.serving.building import kv_region
from policies.serving.serving_spec import model_of_a_card
from sweeps.plan.experiment import (
    ExperimentSpec,
    device_of,
    model_of,
    requests_of,
    workload_of,
)

_DIGITS = 1e7
"""Parts of one to which a share is rounded, upwards, so that a pool of whole requests never lacks
a slot."""


def quarter_share(experiment: ExperimentSpec, replications: Iterable[int], align: int) -> float:
    """The longest prompt of these replications and the longest answer that may be generated, in
    multiples of `align` slots: a quarter of that as a share of the KV memory's slots. Raises
    DescriptionError where the model does not fit."""
    device, model = device_of(experiment), model_of(experiment)
    spec = experiment.serving.on_device(device, model)
    layout = kv_region(device, model_of_a_card(spec, model), spec)
    workload = workload_of(experiment)
    prompt = max(
        int(requests_of(experiment, each, 1.0, workload).prompt_tokens.max())
        for each in replications
    )
    longest = prompt + (spec.engine.max_tokens or model.max_position)
    slots = int(layout.slots_of(align_up(min(longest, model.max_position), align)))
    quarter = align_up(-(-slots // 4), align)
    return ceil((quarter + 0.5) / layout.slots * _DIGITS) / _DIGITS

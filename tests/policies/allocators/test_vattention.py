"""Does vattention hold and map what its authors' arithmetic says?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model, shard
from policies.allocators.allocator import Demand, Limits
from policies.allocators.kv_layout import KvLayout, kv_layout
from policies.allocators.vattention import VattentionAllocator, VattentionOptions
from policies.engines.scheduled_step import Step
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from policies.predictors.predictor import Prediction

FOUR_HEADS = KvLayout(base=0, slots=1 << 16, layers=28, kv_heads=4, head_bytes=256)


def made(layout: KvLayout = FOUR_HEADS, **options: Any) -> VattentionAllocator:
    chosen = VattentionOptions.model_validate({"name": "vattention", **options})
    return VattentionAllocator(layout, 100, Limits(4096, 8192), chosen)


def admit(allocator: VattentionAllocator, request: int, tokens: int) -> None:
    assert allocator.reserve(request, Demand(tokens, 0, Prediction(1.0)), tokens)


def test_growth_of_yi_34b_costs_120_calls_and_nothing_when_overlapped() -> None:
    """A frame of K and of V in 60 layers, 40 us each: 4.8 ms, which a step hides."""
    device, model = load_device("a100-80gb"), shard(load_model("yi-34b"), 2)
    layout = kv_layout(device, model)
    lost = {}
    for growth in ("synchronous", "background"):
        allocator = made(layout, growth=growth)
        admit(allocator, 0, 64)
        allocator.mapping.charged()
        request = np.array([0])
        allocator.advance(request, 1)
        steps = StepModel(device, model, 2)
        alone = steps.times(Step(request, 64, [], [], 0, "offered_load"), 1, Efficiency())
        times = alone.delayed(allocator.mapping.stalls(request, alone.total_s))
        lost[growth] = float((times.total_s - alone.total_s)[0])
    assert lost == {"synchronous": pytest.approx(120 * 40e-6), "background": 0.0}


def test_a_frame_that_cannot_be_is_a_mistake() -> None:
    with pytest.raises(DescriptionError, match="do not fit"):
        made(frame="64GiB")

"""Is a batch placed among what others left?"""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Allocator, Demand, Limits
from policies.allocators.kv_layout import KvLayout
from policies.allocators.registry import POLICIES, PolicySpec
from policies.memory.batch import BatchSpec, place


def placed(age: int, slots: int = 4096, sequences: int = 4) -> tuple[Allocator, list[int]]:
    policy: PolicySpec = POLICIES["paged"].Options(name="paged")  # type: ignore[assignment]
    spec = BatchSpec(policy=policy, sequences=sequences, context=200, age=age)
    layout = KvLayout(0, slots, 1, 1, 16)
    allocator = POLICIES["paged"](layout, spec.requests(), Limits(200, 400), policy)
    return allocator, place(allocator, spec, np.random.default_rng(0)).tolist()


@pytest.mark.parametrize("context", [1, 2, 3, 200])
def test_those_before_come_with_half_of_their_tokens_and_grow(context: int) -> None:
    policy: PolicySpec = POLICIES["paged"].Options(name="paged")  # type: ignore[assignment]
    spec = BatchSpec(policy=policy, sequences=4, context=context, age=30)
    allocator = POLICIES["paged"](KvLayout(0, 4096, 1, 1, 16), 34, Limits(200, 400), policy)
    came: dict[int, int] = {}
    reserve = allocator.reserve

    def noted(request: int, demand: Demand, tokens: int) -> bool:
        came[request] = tokens
        return reserve(request, demand, tokens)

    allocator.reserve = noted  # type: ignore[method-assign]
    place(allocator, spec, np.random.default_rng(0))
    half = context // 2
    lengths = np.random.default_rng(0).integers(half, context + half + 1, 30)
    first = [*lengths // 2, *[half] * 4]
    assert [came[request] for request in range(34)] == [max(each, 1) for each in first]
    assert allocator.stored[30:].tolist() == [context + 1] * 4


def test_is_a_batch_that_does_not_fit_refused() -> None:
    for age in (0, 30):  # some of those before would need more than there is
        placed(age, slots=13 * 16, sequences=1)
    for slots in (12 * 16, 6 * 16):  # its last tokens, and its prompt
        with pytest.raises(DescriptionError, match="do not fit"):
            placed(0, slots=slots, sequences=1)


def test_is_a_place_for_states_refused_where_there_is_only_kv() -> None:
    with pytest.raises(ValueError, match="only where requests are served"):
        BatchSpec.model_validate({"policy": {"name": "paged", "states": "compact"}})

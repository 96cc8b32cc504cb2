"""One suite for every registered allocator, with each choice of each of its options."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from policies.allocator import Allocator, Demand, PolicyOptions
from policies.predictor import Prediction
from policies.registry import POLICIES
from policies.static import StaticAllocator
from tests.policies.contract import LAYOUT, Contract, build, cases, state

CASES = cases()
SOME = Demand(100, 0, Prediction(50.0))


def run(options: PolicyOptions, examples: int = 40) -> None:
    machine = type("Machine", (Contract,), {"options": options})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=30, deadline=None,
            suppress_health_check=list(HealthCheck), database=None, derandomize=True,
            report_multiple_bugs=False,
        ),
    )  # fmt: skip


@pytest.mark.parametrize("options", [c[1] for c in CASES], ids=[c[0] for c in CASES])
class TestEveryAllocator:
    def test_keeps_the_contract_in_random_lives(self, options: PolicyOptions) -> None:
        run(options)

    def test_extents_are_the_stored_bytes_inside_the_layers_half(
        self, options: PolicyOptions
    ) -> None:
        allocator = build(options)
        assert allocator.reserve(3, SOME, 37)
        for layer in range(LAYOUT.layers):
            for half in (0, 1):
                start, size = allocator.extents(3, layer, half)
                first = LAYOUT.half_start(layer, half)
                assert size.sum() == 37 * LAYOUT.half_bytes
                assert start.min() >= first
                assert (start + size).max() <= first + LAYOUT.slots * LAYOUT.half_bytes

    def test_a_stranger_is_a_key_error(self, options: PolicyOptions) -> None:
        allocator = build(options)
        for operation in (allocator.release, allocator.units, allocator.migrate):
            with pytest.raises(KeyError):
                operation(5)
        with pytest.raises(KeyError):
            allocator.grow(5, 1)

    def test_nobody_reserves_twice(self, options: PolicyOptions) -> None:
        allocator = build(options)
        assert allocator.reserve(0, SOME, 10)
        with pytest.raises(ValueError):
            allocator.reserve(0, SOME, 10)

    def test_fills_up_refuses_and_comes_back(self, options: PolicyOptions) -> None:
        allocator = build(options)
        admitted = []
        while allocator.reserve(len(admitted), SOME, 100):
            admitted.append(len(admitted))
        full = state(allocator)
        assert not allocator.reserve(399, SOME, 100) and state(allocator) == full
        allocator.release(admitted[0])
        assert allocator.reserve(399, SOME, 100)

    def test_needs_tells_what_can_never_be_served(self, options: PolicyOptions) -> None:
        allocator = build(options)
        wanted = allocator.needs(np.array([100]), np.array([50]))
        assert 149 <= wanted[0] <= allocator.reach <= LAYOUT.slots


def test_every_choice_of_every_option_is_a_case() -> None:
    names = [name for name, _ in CASES]
    assert {"static", "paged", "odma", "paged-free_list-lifo", "odma-pool-partitioned"} <= set(
        names
    )


class Leaky(StaticAllocator):
    """Forgets to give back what it took."""

    def release(self, request: int) -> int:
        self._require(request)
        return self._dismiss(request)


def test_a_new_allocator_joins_by_its_registry_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class MineOptions(PolicyOptions):
        depth: int = 1

    class Mine(StaticAllocator):
        Options = MineOptions

        def __init__(self, layout, requests, limits, options) -> None:  # type: ignore[no-untyped-def]
            super().__init__(layout, requests, limits, StaticAllocator.Options())

    monkeypatch.setitem(POLICIES, "mine", Mine)
    assert [name for name, _ in cases()][-1] == "mine"
    run(cases()[-1][1], examples=5)


def test_the_contract_catches_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    leaky: type[Allocator] = Leaky
    monkeypatch.setitem(POLICIES, "static", leaky)
    with pytest.raises(AssertionError):
        run(POLICIES["static"].Options(name="static"), examples=5)

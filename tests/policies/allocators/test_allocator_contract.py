"""One suite for every registered allocator, with each choice of each of its options: does it keep
the contract in random lives, and does it answer what it answered?

A change that is meant to move answers writes `lives.json` anew, and prints what has moved:

    python -m tests.policies.allocators.test_allocator_contract
"""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest

from policies.allocators.allocator import Allocator, Demand, PolicyOptions
from policies.allocators.capabilities import Caches, Migrates, Migration, MovesBlocks, Swaps
from policies.allocators.ideal import IdealAllocator
from policies.allocators.kv_layout import Units
from policies.allocators.oracle import OracleAllocator
from policies.allocators.paged import PagedAllocator
from policies.allocators.registry import POLICIES
from policies.allocators.static import StaticAllocator
from policies.predictors.predictor import Prediction
from policies.requests.requests import IntArray
from tests.policies.allocators.contract import state
from tests.policies.allocators.lives import lead
from tests.policies.allocators.plugin import PluginAllocator
from tests.policies.allocators.settings import LAYOUT, REQUESTS, SETTINGS, Setting, build, cases
from tests.policies.records import Records
from tests.rotation import shared

CASES = cases()
SOME = Demand(100, 0, Prediction(50.0), output=50)


def record(name: str) -> str:
    """What one life of many steps comes to, another one in each setting."""
    return lead(SETTINGS[name], first=zlib.crc32(name.encode()), lives=1, steps=70)


RECORDS = Records(Path(__file__).with_name("lives.json"), SETTINGS, record)


@pytest.mark.parametrize("name", SETTINGS)
def test_it_keeps_the_contract_and_answers_what_it_answered(name: str) -> None:
    RECORDS.check(name)


@pytest.mark.long
@pytest.mark.parametrize("name", SETTINGS)
def test_keeps_the_contract_in_random_lives(name: str) -> None:
    lead(SETTINGS[name], lives=20)


@pytest.mark.parametrize("options", shared(c[1] for c in CASES), ids=[c[0] for c in CASES])
class TestEveryAllocator:
    def test_extents_are_the_stored_bytes_inside_the_layers_half_and_needs_are_within_reach(
        self, options: PolicyOptions
    ) -> None:
        allocator = build(options)
        wanted = allocator.needs(np.array([100]), np.array([50]))
        assert 149 <= wanted[0] <= allocator.reach <= LAYOUT.slots
        assert allocator.reserve(3, SOME, 37)
        for layer in range(LAYOUT.layers):
            for half in (0, 1):
                start, size = allocator.extents(3, layer, half)
                begin, planes = 2 * layer + half, 1
                if allocator.layout.dims != LAYOUT.dims:  # all layers of a half in one plane
                    begin, planes = half * LAYOUT.layers, LAYOUT.layers
                first = LAYOUT.base + begin * LAYOUT.slots * LAYOUT.half_bytes
                assert size.sum() == 37 * LAYOUT.half_bytes
                assert start.min() >= first
                assert (start + size).max() <= first + planes * LAYOUT.slots * LAYOUT.half_bytes

    def test_who_holds_memory_and_who_holds_none_is_refused(self, options: PolicyOptions) -> None:
        allocator = build(options)
        assert allocator.reserve(0, SOME, 10)
        with pytest.raises(ValueError, match="already"):
            allocator.reserve(0, SOME, 10)
        allocator.release(0)
        before = state(allocator)
        operations = [
            allocator.release, allocator.units, lambda request: allocator.grow(request, 1)
        ]  # fmt: skip
        operations += [moves.migrate] if (moves := allocator.able(Migrates)) else []
        if swaps := allocator.able(Swaps):
            operations += [swaps.swap_out, swaps.swap_in]
        if caches := allocator.able(Caches):
            operations.append(lambda request: caches.release_known(request, 1))
        for operate in operations:
            with pytest.raises(KeyError):
                operate(0)
        assert state(allocator) == before

    def test_fills_up_refuses_and_comes_back(self, options: PolicyOptions) -> None:
        allocator = build(options)
        count = next(n for n in range(REQUESTS) if not allocator.reserve(n, SOME, 100))
        full = state(allocator)
        assert not allocator.reserve(399, SOME, 100) and state(allocator) == full
        allocator.release(0)
        assert count and allocator.reserve(399, SOME, 100)


def test_what_lies_in_barred_blocks_is_not_found() -> None:
    allocator = build(POLICIES["paged"].Options.model_validate({"name": "paged"}))
    moves, caches = allocator.able(MovesBlocks), allocator.able(Caches)
    assert allocator.reserve(0, SOME, 100) and allocator.release(0)
    assert caches.cached(0, 99) == 96
    assert moves.bar(np.array([1, 40])) == 0 and caches.cached(0, 99) == 16


def test_every_choice_of_every_option_is_a_case() -> None:
    assert {
        "static", "paged", "odma", "paged-free_list-lifo", "odma-space-partitioned", "ideal",
        "orca-variant-pow2", "s3-outgrown-double", "oracle-fit-best",
    } <= {name for name, _ in CASES}  # fmt: skip


def test_a_new_allocator_joins_by_its_registry_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "plugin", PluginAllocator)
    assert [name for name, _ in cases()][-1] == "plugin"
    lead(Setting(cases()[-1][1]), lives=3)


class Leaky(StaticAllocator):
    """Forgets to give back what it took."""

    def release(self, request: int) -> int:
        self.require(request)
        return self._dismiss(request)


class Overlapping(StaticAllocator):
    """Puts everybody a slot into his neighbour's place."""

    def units(self, request: int) -> Units:
        units = super().units(request)
        return units._replace(start=np.maximum(units.start - 1, 0))


class Overpromising(StaticAllocator):
    """Sees room behind the end of a reservation."""

    def headroom(self, requests: IntArray, limit: int) -> int:
        return limit


class Hasty(IdealAllocator):
    """Takes note of a growth before it refuses it."""

    def grow(self, request: int, tokens: int) -> bool:
        self.stored[request] += tokens
        if tokens > self.free_slots:
            return False
        self.reserved[request] += tokens
        self.reserved_total += tokens
        return True


class Boastful(StaticAllocator, Caches):
    """Says that everything is in memory already."""

    def cached(self, request: int, limit: int, demand: Demand | None = None) -> int:
        return limit

    def finished(self, request: int, prompt: int, output: int) -> None:
        pass


class Familiar(PagedAllocator):
    """Shares the blocks of whole prompts that are not alike."""

    def reserve(self, request: int, demand: Demand, tokens: int) -> bool:
        alike = demand._replace(prefix_id=0, prefix_tokens=demand.prompt)
        return super().reserve(request, alike, tokens)


class Forgetful(StaticAllocator):
    """Loses a token on the way to host memory and back."""

    def receive(self, request: int, demand: Demand, tokens: int) -> bool:
        came = super().receive(request, demand, tokens)
        self.stored[request] -= came
        return came


class Careless(OracleAllocator, Migrates):
    """Moves a request, but for its last token."""

    def settle(self) -> None:
        pass

    def migrate(self, request: int) -> Migration | None:
        self.require(request)
        old, held = int(self.start[request]), int(self.reserved[request])
        new = self.sizes.space.take(2 * held)
        if new is None:
            return None
        self.start[request] = new
        self.reserved[request] = 2 * held
        self.reserved_total += 2 * held
        return Migration(request, old, new, int(self.stored[request]) - 1, held)


@pytest.mark.parametrize(
    "faulty", [Leaky, Overlapping, Overpromising, Hasty, Boastful, Familiar, Forgetful, Careless]
)
def test_the_contract_catches(monkeypatch: pytest.MonkeyPatch, faulty: type[Allocator]) -> None:
    name = faulty.Options.model_fields["name"].default
    monkeypatch.setitem(POLICIES, name, faulty)
    with pytest.raises(AssertionError):
        lead(Setting(faulty.Options.model_validate({"name": name})), lives=40)


if __name__ == "__main__":
    RECORDS.write()

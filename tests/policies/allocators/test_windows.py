"""Sliding windows in the allocators: groups of layers, what they keep, and where it lies."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodel.specs.attention import AttentionWindow
from hwmodel.specs.transformer import load_model
from policies.allocators.allocator import Allocator, Demand, Limits, PolicyOptions
from policies.allocators.capabilities import Drafts, Migrates, OnDemand, Remembers, Swaps
from policies.allocators.kv_groups import KvGroups, kv_groups
from policies.allocators.kv_layout import KvLayout
from policies.allocators.registry import POLICIES, build
from policies.predictors.prediction import Prediction
from tests.policies.small import WINDOWS

TWO = WINDOWS.model_copy(
    update={"window": AttentionWindow(tokens=40, pattern=["window", 16, "full"])}
)
"""Windows of two lengths."""
LIMITS = Limits(max_tokens=200, max_model_len=400, step=96)
POLICY: dict[str, dict[str, Any]] = {
    "paged": {"name": "paged"},
    "paged-drafts": {"name": "paged", "block": 8},
    "static": {"name": "static"},
    "paged-split": {"name": "paged", "free_list": "split", "null_block": True, "block": 8},
    "static-full": {"name": "static", "window_kv": "full"},
    "s3": {"name": "s3", "stagger": 3},
    "odma": {"name": "odma", "tau": 9},
    "odma-partitioned": {"name": "odma", "space": "partitioned"},
    "odma-compacts": {"name": "odma", "space": "arena", "compaction": "copied"},
    "orca": {"name": "orca"},
    "oracle": {"name": "oracle"},
    "ideal": {"name": "ideal"},
}


def options_of(name: str) -> PolicyOptions:
    return POLICIES[POLICY[name]["name"]].Options.model_validate(POLICY[name])


def groups_of(model: Any, kind: Any) -> KvGroups:
    found = kv_groups(model, kind)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "size", "kept", "ring"),
    [
        ("gemma-3-12b", 8, [1024] * 5 + [None], (8, 6)),
        ("gemma-3-27b", 10, [1024] * 6 + [None], (2, 31)),  # 52 and 10 layers; 8 are padding
        ("gpt-oss-20b", 12, [128, None], (12, 2)),
        ("mistral-7b-v0.1", 32, [4096], (32, 1)),
    ],
)
def test_groups_are_vllms_and_rings_have_no_padding(
    name: str, size: int, kept: list[int | None], ring: tuple[int, int]
) -> None:
    model = load_model(name)
    found = groups_of(model, "blocks")
    assert (found.size, list(found.kept)) == (size, kept)
    exact = groups_of(model, "ring")
    assert (exact.size, len(exact.kept)) == ring and exact.size * ring[1] == model.layers
    for groups in (found, exact):
        assert len(set(groups.place)) == model.layers
        for layer, (group, place) in enumerate(groups.place):
            assert groups.kept[group] == groups.windows[layer] and place < groups.size
        assert groups.place[0][0] == 0  # in the order of their first layer
    # a kind's layers are dealt to its groups in turn
    near = [layer for layer, window in enumerate(found.windows) if window]
    many = sum(found.near.values())
    assert [found.place[layer][0] for layer in near[: 2 * many]] == list(range(many)) * 2


def test_layers_are_grouped_as_vllm_groups_them() -> None:
    """But for 0.11, which pads nothing where one kind has less than half more than the other."""
    file = Path(__file__).parents[2] / "reference" / "vllm_window_groups.json"
    apart = set()
    for version, models in json.loads(file.read_text()).items():
        for name, facts in models.items():
            kinds = ["window" if window else "full" for window in facts["pattern"]]
            tokens = next(window for window in facts["pattern"] if window)
            window = AttentionWindow(tokens=tokens, pattern=kinds)
            model = WINDOWS.model_copy(update={"layers": facts["layers"], "window": window})
            found = groups_of(model, "blocks")
            ours: list[list[int]] = [[] for _ in found.kept]
            for layer, (group, place) in enumerate(found.place):
                assert place == len(ours[group])
                ours[group].append(layer)
            if ours != facts["groups"]:
                apart.add((version, name))
    assert apart == {("0.11.2", "5 and 4"), ("0.11.2", "7 and 6")}


@pytest.mark.parametrize("name", ["gemma-3-12b", "gpt-oss-20b", "mistral-7b-v0.1"])
def test_blocks_in_use_are_the_closed_form_at_every_length(name: str) -> None:
    model = load_model(name)
    groups = groups_of(model, "blocks")
    layout = KvLayout(0, 1 << 20, groups.size, 1, 16, groups=groups)
    # the chunk is such that a token less than the window would be a block less
    chunk = 514
    ((window, near),) = groups.near.items()
    limits = Limits(10_000, 20_000, step=chunk)
    allocator: Any = build(layout, 1, limits, POLICIES["paged"].Options(name="paged"))
    demand = Demand(2048, 0, Prediction(1.0), output=4000)
    assert allocator.reserve(0, demand, chunk)
    cap = -(-(window - 1 + chunk) // 16) + 1
    stored = chunk
    while stored < 2048 + 4000:
        more = chunk if stored < 2048 else 1
        assert allocator.grow(0, more)
        gone = max(stored - window + 1, 0) // 16  # at the last growth
        stored += more
        blocks = -(-stored // 16)
        held = len(groups.kept) * blocks - near * gone
        assert allocator.reserved[0] == held * 16
        assert allocator.slots - allocator.free_slots == held * 16 == allocator.reserved_total
        assert held <= (len(groups.kept) - near) * blocks + near * min(blocks, cap)
    blocks = -(-(2048 + 4000) // 16)
    most = (len(groups.kept) - near) * blocks + near * min(blocks, cap)
    assert allocator.needs(np.array([2048]), np.array([4001])).tolist() == [most * 16]


class Lives:
    """Random lives of requests on an allocator, and what lies in each slot of the KV region for
    each group of layers: (request, token)."""

    def __init__(self, name: str, slots: int, seed: int, model: Any = WINDOWS) -> None:
        options, self.drafts = options_of(name), name.endswith("drafts")
        groups = groups_of(model, options.kv_of_windows)
        self.layout = KvLayout(4096, slots, groups.size, 2, 32, groups=groups)
        self.groups = groups
        self.allocator: Any = build(self.layout, 300, LIMITS, options)
        self.empty = self.allocator.free_slots, self.allocator.largest_hole
        self.rng = np.random.default_rng(seed)
        self.content: dict[int, tuple[int, int, int]] = {}
        self.held: dict[int, Demand] = {}
        self.away: dict[int, Demand] = {}
        self.migrated = self.refused = self.drafted = 0

    def places(self, request: int, group: int) -> np.ndarray:
        """Slot of each token; of those that are gone, wherever."""
        units = self.allocator.layer_units(request, group)
        assert units.tokens.sum() == self.allocator.stored[request]
        assert (units.tokens <= units.size).all()
        runs = zip(units.start.tolist(), units.tokens.tolist(), strict=True)
        return np.concatenate([start + np.arange(count) for start, count in runs])

    def kept(self, group: int, stored: int) -> int:
        """First token that the group must still have for the token after `stored`."""
        window = self.groups.kept[group]
        return 0 if window is None else max(stored - window + 1, 0)

    def store(self, request: int, before: int) -> None:
        """Write the tokens from `before` on, in each group those that last."""
        stored = int(self.allocator.stored[request])
        for group in range(len(self.groups.kept)):
            slots = self.places(request, group)
            for token in range(max(before, self.kept(group, stored)), stored):
                self.content[int(slots[token])] = (request, group, token)

    def check(self) -> None:
        """All that a request may still attend to is where it says; nobody holds another's slots."""
        allocator = self.allocator
        seen: list[np.ndarray] = []
        for request in self.held:
            units = allocator.units(request)
            seen += [
                start + np.arange(size)
                for start, size in zip(units.start.tolist(), units.size.tolist(), strict=True)
            ]
            assert units.size.sum() == allocator.reserved[request]
            stored = int(allocator.stored[request])
            assert self.layout.slots_of(stored) <= allocator.reserved[request]
            for group in range(len(self.groups.kept)):
                slots = self.places(request, group)
                for token in range(self.kept(group, stored), stored):
                    assert self.content[int(slots[token])] == (request, group, token)
        slots = np.concatenate(seen) if seen else np.zeros(0, np.int64)
        assert len(np.unique(slots)) == len(slots) == allocator.reserved_total
        assert allocator.reserved_total + allocator.free_slots == self.empty[0]

    def state(self, allocator: Allocator) -> Any:
        return (
            allocator.stored.tolist(), allocator.reserved.tolist(), allocator.reserved_total,
            allocator.free_slots,
            {r: [c.tolist() for c in allocator.units(r)] for r in self.held},
        )  # fmt: skip

    def admit(self, request: int) -> None:
        prompt, output = int(self.rng.integers(1, 180)), int(self.rng.integers(1, 150))
        guess = Prediction(max(output * float(self.rng.uniform(0.2, 2)), 1.0), 0.3)
        demand = Demand(prompt, 0, guess, output=output)
        before = self.state(self.allocator)
        if not self.allocator.reserve(request, demand, min(prompt, LIMITS.step)):
            self.refused += 1
            assert self.state(self.allocator) == before
            return
        for move in self.allocator.moves() if hasattr(self.allocator, "moves") else ():
            self.copy(move.source, move.target, move.request)
        self.held[request] = demand
        self.store(request, 0)

    def copy(self, source: int, target: int, request: int) -> None:
        """Tokens of a run that has moved: where each lies follows from the run's size."""
        old = {slot: what for slot, what in self.content.items() if what[0] == request}
        stored = int(self.allocator.stored[request])
        for group in range(len(self.groups.kept)):
            slots = self.places(request, group)
            for token in range(self.kept(group, stored), stored):
                assert (request, group, token) in old.values()
                self.content[int(slots[token])] = (request, group, token)

    def step(self) -> None:
        """Every request stores its next chunk or token; who cannot migrates or goes."""
        allocator, grown = self.allocator, []
        for request, demand in list(self.held.items()):
            stored = int(allocator.stored[request])
            if stored >= demand.prompt:
                grown.append(request)
                continue
            if not allocator.grow(request, min(demand.prompt - stored, LIMITS.step)):
                self.give_way(request)
                continue
            self.store(request, stored)
        for request in grown:
            left = self.held[request].output - (
                int(allocator.stored[request]) - self.held[request].prompt
            )
            if left <= 1:
                self.leave(request)
        self.decode([request for request in grown if request in self.held])

    def decode(self, requests: list[int]) -> None:
        allocator, wanted = self.allocator, int(self.rng.integers(1, 20))
        if not requests:
            return
        left = min(
            self.held[r].output - (int(allocator.stored[r]) - self.held[r].prompt) - 1
            for r in requests
        )
        wanted, array = max(min(wanted, left), 1), np.array(requests)
        if self.drafts:
            self.draft(array, max(left, 1))
            return
        rounds = allocator.headroom(array, wanted)
        slow, reserved = copy.deepcopy(allocator), []
        for _ in range(rounds):
            assert all(slow.grow(request, 1) for request in requests)
            reserved.append(slow.reserved_total)
        before = allocator.stored[array].copy()
        allocator.advance(array, rounds)
        assert self.state(allocator) == self.state(slow)
        if allocator.able(OnDemand) and rounds:
            back = allocator.able(OnDemand).grown(array, rounds)
            assert (allocator.reserved_total - back).tolist() == reserved
        for request, stored in zip(requests, before.tolist(), strict=True):
            self.store(request, stored)
        if rounds == wanted:
            return
        assert not all(slow.grow(request, 1) for request in requests)
        for request in requests:
            if allocator.headroom(np.array([request]), 1):
                continue
            moves = allocator.able(Migrates)
            moved = moves.migrate(request) if moves else None
            if moved is None:
                self.give_way(request)
                continue
            self.copy(moved.source, moved.target, request)
            self.migrated += 1
            assert allocator.headroom(np.array([request]), 1)
            moves.settle()

    def draft(self, requests: np.ndarray, left: int) -> None:
        """Some drafts of each are kept, in order until one has no room."""
        kept = self.rng.integers(1, min(left, 4) + 1, len(requests))
        before, none = self.allocator.stored[requests], 0 * requests
        had = self.allocator.able(Drafts).store_ahead(requests, kept, none + 3, none)
        more = (self.allocator.stored[requests] - before).tolist()
        assert more == [*kept[:had], *[0] * (len(requests) - had)]
        for request, stored in zip(requests[:had].tolist(), before.tolist(), strict=False):
            self.store(request, stored)
        for request in requests[had : had + 1].tolist():
            self.give_way(request)
        self.drafted += had

    def give_way(self, request: int) -> None:
        """A request goes to the host or leaves."""
        swaps = self.allocator.able(Swaps)
        if not swaps or self.rng.random() < 0.5:
            self.leave(request)
            return
        self.content = {s: what for s, what in self.content.items() if what[0] != request}
        assert swaps.swap_out(request)
        self.away[request] = self.held.pop(request)

    def come_back(self) -> None:
        """Those on the host, with all that they had stored."""
        for request in list(self.away):
            before, stored = self.state(self.allocator), int(self.allocator.stored[request])
            assert not stored
            if not self.allocator.able(Swaps).swap_in(request):
                assert self.state(self.allocator) == before
                continue
            for move in self.allocator.moves() if hasattr(self.allocator, "moves") else ():
                self.copy(move.source, move.target, move.request)
            self.held[request] = self.away.pop(request)
            self.store(request, 0)

    def leave(self, request: int) -> None:
        demand = self.held.pop(request)
        self.content = {s: what for s, what in self.content.items() if what[0] != request}
        self.allocator.release(request)
        if remembers := self.allocator.able(Remembers):
            remembers.finished(request, demand.prompt, demand.output)


@pytest.mark.parametrize("model", [WINDOWS, TWO], ids=["one", "two"])
@pytest.mark.parametrize("name", list(POLICY))
def test_what_a_request_attends_to_lies_where_it_says(name: str, model: Any) -> None:
    lives = Lives(name, {"orca": 2048, "odma": 2560}.get(name, 1536), seed=4, model=model)
    for request in range(45):
        lives.come_back()
        lives.admit(request)
        lives.step()
        if name != "ideal":  # it moves tokens at will
            lives.check()
    assert lives.refused > 0
    for request in list(lives.held):
        lives.leave(request)
    assert (lives.allocator.free_slots, lives.allocator.largest_hole) == lives.empty
    assert lives.migrated > 0 or name != "odma" or model is TWO
    assert (lives.drafted > 0) == lives.drafts


def test_old_blocks_are_given_up_as_vllm_does_and_used_again() -> None:
    """Window 8, blocks of 4, groups near, near, full: the fourth block frees the first of the
    windowed groups, group by group, before it takes three."""
    model = WINDOWS.model_copy(
        update={"window": WINDOWS.window.model_copy(update={"tokens": 8})}  # type: ignore[union-attr]
    )
    groups = groups_of(model, "blocks")
    layout = KvLayout(0, 4 * 14, groups.size, 1, 16, groups=groups)
    options = POLICIES["paged"].Options.model_validate({"name": "paged", "block": 4})
    allocator: Any = build(layout, 2, LIMITS, options)
    assert allocator.reserve(0, Demand(12, 0, Prediction(1.0)), 12)
    tables = [(allocator.layer_units(0, group).start // 4).tolist() for group in range(3)]
    assert tables == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]  # group by group
    assert allocator.grow(0, 1)
    # 12 stored, the next attends from token 5 on: the first block is gone
    tables = [(allocator.layer_units(0, group).start // 4).tolist() for group in range(3)]
    assert tables == [[0, 1, 2, 9], [0, 4, 5, 10], [6, 7, 8, 11]]
    assert allocator.free_slots == 4 * (14 - 10)
    assert allocator.reserve(1, Demand(1, 0, Prediction(1.0)), 1)
    assert (allocator.units(1).start // 4).tolist() == [12, 13, 0]  # first freed, first reused
    assert not allocator.grow(0, 8) and allocator.stored[0] == 13

"""Do requests that move between cards keep every byte once, and do moves cost what they should?"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.link import load_link
from hwmodel.specs.stages import dealt, stages_of
from hwmodel.specs.transformer import TransformerSpec, load_model
from policies.allocators.kv_frames import CardFrames
from policies.memory.step_times import StepTimes
from policies.requests.requests import Requests
from policies.serving.building import kv_region
from policies.serving.drop_groups import (
    drop_plan,
    exchanged,
    joined,
    lacking_bytes,
    moved_layers,
    pipeline_order,
)
from policies.serving.dropping import Dropping
from policies.serving.node_controller import Controller
from policies.serving.serving import serve
from policies.serving.serving_spec import ServingSpec
from policies.transfers.fabric import Fabric
from policies.transfers.guests import Guests
from policies.transfers.kv_link import KvPlace, Transfer
from tests.policies.small import mixed, requests, spec
from tests.rotation import LONG

SHAPE = TransformerSpec(
    kind="model", name="heavy", layers=8, hidden=256, heads=4, kv_heads=4, head_dim=64,
    intermediate=1024, vocabulary=1000, max_position=4096, qkv_bias=False, tied_embeddings=False,
)  # fmt: skip
"""8 KiB of KV a token, 17.8 MB of weights: those of 2,180 tokens."""
LINK = "mooncake-rdma-400"
DROPPING: dict[str, Any] = {
    "cards": 4,
    "dropping": {"link": LINK, "every_s": 0.005, "frame": "64KiB"},
}
MIGRATION: dict[str, Any] = {
    "cards": 3,
    "migration": {"link": LINK, "every_s": 0.002, "last_blocks": 3, "freeness": 16},
}


@functools.cache
def card(tokens: int) -> Device:
    """With room for so many tokens beside the weights; nothing is lost to refreshes, which streams
    as short as these meet by chance."""
    capacity = (-(-SHAPE.weight_bytes // (2 << 20)) << 21) + tokens * SHAPE.kv_token_bytes
    return load_device(
        "mlu370-x4", [f"capacity={capacity}B", "derate=1", "controller.refresh=none"]
    )


def burst(count: int, seed: int = 0, rate: float = 2000.0) -> Requests:
    """Two thirds of the requests come fast, the others slowly."""
    stream = mixed(count, rate, seed)
    late = np.maximum(np.arange(count) - 2 * count // 3, 0)
    return dataclasses.replace(stream, arrival_s=stream.arrival_s + late * 20 / rate)


def found(stream: Requests, cluster: dict[str, Any], tokens: int = 2048, **changes: Any) -> Any:
    return serve(card(tokens), SHAPE, spec(cluster=cluster, **changes), stream, seed=1).metrics


class Watched:
    """Looks at who holds what between any two steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks = self.copies = 0
        own = Controller._act

        def looking(control: Controller, act: Any, cards: Any, at_s: float) -> None:
            def between(now_s: float) -> None:
                self._look(control)
                act(now_s)
                self._look(control)

            own(control, between, None, at_s)  # every card is between two steps

        planned = Controller._look

        def planning(control: Controller, at_s: float) -> None:
            looking(control, lambda _: None, None, at_s)
            planned(control, at_s)

        monkeypatch.setattr(Controller, "_act", looking)
        monkeypatch.setattr(Controller, "_look", planning)

    def _look(self, control: Controller) -> None:
        """Every request's KV is whole in one place; what else is held is a copy that comes, what
        one leaves behind until all of it is there, or for a tier; nothing else is reserved."""
        self.node = control.node
        runs: list[int] = []
        waits: list[int] = []
        for replica in control.node.built:
            engine, allocator = replica.engine, replica.engine.allocator
            hosting = engine.connector(Guests)
            running = engine.running.tolist()
            arriving = list(hosting.landing.coming_at)
            runs += running + arriving
            waits += list(engine.waiting)
            held = {*running, *hosting.landing.requests, *engine.loading, *engine.held}
            assert held == set(np.flatnonzero(allocator.resident).tolist())
            assert set(allocator.pinned) <= held
            assert allocator.reserved_total >= int(allocator.reserved.sum())
            pool = getattr(allocator, "pool", None)
            barred = 0 if pool is None else len(pool.barred) * hosting.block
            assert allocator.reserved_total + allocator.free_slots + barred == allocator.slots
            assert (allocator.stored <= allocator.reserved).all()
            assert not set(engine.waiting) & held
            self.copies += len(hosting.landing.coming)
        assert len(runs) == len(set(runs)) and not set(runs) & set(waits)
        assert len(waits) == len(set(waits))
        if isinstance(control, Dropping) and control.frames.held:
            self._look_at_frames(control)
        self.looks += 1

    def _look_at_frames(self, node: Dropping) -> None:
        """On each card every frame of KV is in one place, with those that dropped weights left;
        all cards of a group have room for its blocks; none lies where weights come back."""
        for group in node._groups:
            slots = node.engine(group[0]).allocator.slots
            order = pipeline_order(group, node._stages)
            stages, layers = stages_of(SHAPE, len(order)), 0
            for place, stage in zip(order, stages, strict=True):
                card, own = node.frames.held[place], node.frames._own[place[1]]
                assert card.layers == range(layers, layers := layers + stage.layers)
                assert card.held.size * card.frame_bytes == slots * stage.kv_token_bytes
                assert (card.base - stage.weight_bytes) < (2 << 20) + card.frame_bytes
                every = np.sort(np.concatenate((card.held.ravel(), card.spare)))
                end = own.base + (own.held.size + len(own.spare)) * own.frame_bytes
                assert (every == np.arange(card.base, end, card.frame_bytes)).all()
                if group in node._pulling:
                    assert (places(card, held_by(node.engine(group[0]))) >= own.base).all()


def held_by(engine: Guests) -> Any:
    """Blocks of all requests with memory."""
    residents = np.flatnonzero(engine.allocator.resident).tolist()
    each = [engine.allocator.units(request).start for request in residents]
    return np.unique(np.concatenate([np.zeros(0, np.int64), *each])) // engine.block


def places(card: CardFrames, blocks: Any) -> Any:
    """Addresses of blocks of 16 tokens of 512 B, (planes, blocks)."""
    frame, within = np.divmod(blocks * 16 * 512, card.frame_bytes)
    return card.held[:, frame] + within


ENGINES: dict[str, dict[str, Any]] = {
    "v1": {}, "foreseen ends": {"async_scheduling": True, "ends": "length"},
    "prefills in turn": {"long_prefill_token_threshold": 64, "prefill_schedule_interval": 3},
}  # fmt: skip
"""Of which others are among the pairs of test_pairs.py."""


@pytest.mark.parametrize("seed", range(12 if LONG else 1))
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("cluster", [DROPPING, MIGRATION], ids=["dropping", "migration"])
def test_every_byte_of_kv_is_in_one_place_across_drops_moves_and_aborts(
    cluster: dict[str, Any], engine: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(monkeypatch)
    metrics = found(burst(150, seed, 1500.0 * (1 + seed)), cluster, engine=ENGINES[engine])
    assert metrics["finished"] == 150 < watched.looks
    node = metrics["node"]
    if "dropping" in node:
        assert node["dropping"]["drops"] and node["dropping"]["restores"]
        assert node["dropping"]["exchanges"]
    else:
        assert node["migration"]["moved"] and watched.copies


def test_rates_of_copies_at_once_add_up_until_each_ends() -> None:
    links = Fabric().at(KvPlace("", 0))
    here, there = (KvPlace("", 0),), (KvPlace("", 1),)
    for end, rate, seconds in (({"source": here, "target": there}, 3.0, 2.0),
                               ({"source": there, "target": here}, 4.0, 1.0)):  # fmt: skip
        copy = Transfer(bytes=8, alone_s=seconds, read=rate, written=rate, **end)
        links.network.put(copy)
    found = []
    for at_s in (0.0, 1.0, 2.0):
        links.network.until(at_s)
        found.append(links.copying())
    assert found == [7.0, 3.0, 0.0]


def test_a_plan_merges_the_two_smallest_until_enough_is_freed() -> None:
    cards = [(0,), (1,), (2,), (3,)]
    assert drop_plan(cards, 10, 1, 8) == [((0,), (1,))]
    assert drop_plan(cards, 10, 11, 8) == [((0,), (1,)), ((2,), (3,))]
    assert drop_plan(cards, 10, 99, 8)[2] == ((0, 1), (2, 3))
    assert len(drop_plan(cards, 10, 99, 2)) == 2 and drop_plan(cards, 10, 0, 8) == []
    assert drop_plan([(0, 1), (2,), (3,)], 10, 20, 8) == [((2,), (3,)), ((0, 1), (2, 3))]


def test_cards_of_a_group_keep_layers_that_they_have() -> None:
    """But for one, where layers are not dealt evenly."""
    for cards in range(2, 9):
        groups = [(card,) for card in range(cards)]
        has = {card: range(28) for card in range(cards)}
        for first, second in drop_plan(groups, 1, 10**9, 8):
            group = joined(first, second)
            edges = np.cumsum((0, *dealt(28, len(group)))).tolist()
            for card, layers in zip(group, map(range, edges, edges[1:]), strict=True):
                assert len(set(layers) - set(has[card])) <= (cards not in (2, 4))
                has[card] = layers


@pytest.mark.parametrize(("name", "cards", "gain"), [
    ("mlu370-x4", 2, 0.96), ("mlu370-x4", 4, 1.43), ("a100-80gb", 2, 0.12),
])  # fmt: skip
def test_a_group_of_cards_has_the_kv_that_one_copy_leaves(
    name: str, cards: int, gain: float
) -> None:
    model, chosen = load_model("deepseek-r1-distill-qwen-7b"), load_device(name)

    def tokens(stages: int) -> int:
        given = ServingSpec.model_validate(
            {"model": model.name, "cluster": {"stages": stages}, "activation_bytes": "0B"}
        )
        parts = stages_of(model, stages)
        return min(kv_region(chosen, part, given).slots for part in parts)

    weights, memory = model.weight_bytes, 0.9 * chosen.capacity_bytes
    closed = (cards - 1) * weights / cards / (memory - weights)
    assert closed == pytest.approx(gain, abs=0.01)
    # the fullest stage has a table or the head beside its layers
    assert 0.95 * closed < tokens(cards) / (cards * tokens(1)) - 1 < 1.001 * closed


def test_bytes_over_200_gigabits_take_what_they_must() -> None:
    link, tokens, layers = load_link(LINK, ["paths=[{post: 0ns, bandwidth: 25GB/s}]"]), 2560, 4
    expected = tokens * layers * SHAPE.kv_layer_bytes
    seconds, size = exchanged(link, SHAPE, tokens, range(layers), 256)
    assert seconds == pytest.approx(expected / 25e9 + 20e-6) and size == expected
    missing = SHAPE.weight_bytes - min(part.weight_bytes for part in stages_of(SHAPE, 2))
    assert lacking_bytes(SHAPE, 2, 1) == missing
    assert link.seconds(missing) == pytest.approx(missing / 25e9 + 20e-6)


def test_layers_that_change_cards_are_counted_on_the_busiest() -> None:
    pair = pipeline_order((0, 1))
    assert all(len(moved_layers(8, [(card, 0)], pair)) == 4 for card in (0, 1))
    assert len(moved_layers(8, pair, pipeline_order((0, 2, 1, 3)))) == 2  # half of each card's
    assert len(moved_layers(8, pair, [(0, 0)])) == 4
    assert len(moved_layers(8, pipeline_order((0, 1, 2, 3)), [(2, 0)])) == 6


def test_downtime_is_as_short_with_8k_tokens_as_with_256() -> None:
    """A lone long request goes from one of two cards to the other, and back."""
    # 16 blocks, each 16 pieces of 8 KiB
    most_s = load_link(LINK).cost(np.array([8 << 10]), np.array([16 * 16])).total_ns / 1e9
    shape = SHAPE.model_copy(update={"max_position": 32768})
    given = spec(cluster={"cards": 2, "migration": {"link": LINK, "freeness": 1e9}})
    for context in (256, 8192):
        lone = requests([0.0], [context], [3000])
        moves = serve(card(16384), shape, given, lone, seed=1).metrics["node"]["migration"]
        assert moves["moved"] and moves["tokens"]["p50"] >= context
        assert moves["downtime_s"]["p99"] <= most_s * (1 + 1e-9)
    whole = load_link(LINK).cost(np.array([8 << 10]), np.array([512 * 16]))
    assert most_s < whole.total_ns / 1e9 / 25


def test_steps_beside_a_copy_take_longer_by_what_it_takes_of_the_memory() -> None:
    one = np.array([0.01])
    times = StepTimes(0.004, np.array([0.005]), 0.0, 0.0, 0.001, one, np.zeros(1))
    assert times.contended(8e9, 2000e9)[0] == pytest.approx(0.009 * 8 / 1992)
    apart = times._replace(weights_apart=True)  # read in another memory
    assert apart.contended(8e9, 2000e9)[0] == pytest.approx(0.005 * 8 / 1992)
    with pytest.raises(DescriptionError, match="takes all that the card"):
        times.contended(8e9, 8e9)


def test_a_device_that_translates_frames_of_another_size_is_refused() -> None:
    device = load_device("mlu370-x4", ["translation={frame: 2MiB}"])
    given = spec(cluster=DROPPING, memory={"fidelity": "analytic"})
    with pytest.raises(DescriptionError, match=r"cluster\.dropping maps frames of"):
        kv_region(device, SHAPE, given)  # before a run, not at its first drop

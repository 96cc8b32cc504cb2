"""Does KV on several cards stay whole, cost what it should, and merge to the same attention?"""

from __future__ import annotations

import dataclasses
import functools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from hwmodel.specs.link import load_link
from hwmodel.specs.transformer import load_model
from policies.memory.distributed_attention import DistributedAttention, Share
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from policies.requests.requests import Requests
from policies.serving.building import kv_region
from policies.serving.lending import Grant, Holder, lending_plan
from policies.serving.node_controller import Controller
from policies.serving.serving import serve
from policies.serving.serving_spec import ServingSpec, model_of_a_card
from policies.transfers.lender import Lender
from policies.transfers.lending_delays import LendingDelays
from policies.transfers.loans import Loan, Loans
from tests.policies.serving.test_moving import LINK, SHAPE, card
from tests.policies.small import WINDOWS as SMALL_WINDOWS
from tests.policies.small import device, mixed, requests, spec
from tests.rotation import LONG

LENDING = {"cards": 3, "lending": {"link": LINK, "every_s": 0.002}}
ENGINE = {"max_num_batched_tokens": 256, "max_num_seqs": 64}


def some_long(count: int, seed: int = 0, tokens: int = 2500) -> Requests:
    """Every seventh prompt is longer than a card has room for."""
    stream = mixed(count, 1500.0, seed)
    prompt = stream.prompt_tokens.copy()
    prompt[::7] = tokens
    return dataclasses.replace(stream, prompt_tokens=prompt)


def found(stream: Requests, cluster: Any = None, tokens: int = 1536, **changes: Any) -> Any:
    given = {"cluster": cluster or LENDING, "engine": ENGINE, **changes}
    return serve(card(tokens), SHAPE, spec(**given), stream, seed=1).metrics


class Watched:
    """Looks at who holds what between any two steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks = self.lent = self.moving = 0
        self.lenders: list[Lender] = []
        own = Controller._act

        def looking(control: Any, act: Any, cards: Any, at_s: float) -> None:
            def between(now_s: float) -> None:
                if getattr(act, "func", None) != control._replace:  # a card has failed just now
                    self._look(control._engines)
                act(now_s)
                self._look(control._engines)

            own(control, between, None, at_s)  # every card is between two steps

        monkeypatch.setattr(Controller, "_act", looking)

    def _look(self, lenders: list[Lender]) -> None:
        """A token that is stored is at home or in one loan, a room is memory of one lender, and
        nothing else is reserved."""
        self.lenders = lenders
        rooms: dict[tuple[int, int], int] = {}
        for lender in lenders:
            engine = lender.engine
            for request, loans in lender.loans.items():
                assert len({loan.lender for loan in loans}) == len(loans)
                for loan in loans:
                    assert loan.lender != lender.card and loan.open >= 0 <= loan.filled
                    assert (loan.lender, request) not in rooms
                    rooms[loan.lender, request] = loan.room
                    self.moving += loan.moving
            for request in engine.decoding().tolist():
                away = sum(loan.filled for loan in lender.loans.get(request, ()))
                made = int(engine.output[request] - engine.left[request])
                whole = int(engine.prompt[request]) + made - 1
                assert int(engine.allocator.stored[request]) + away == whole
        for number, lender in enumerate(lenders):
            engine, allocator = lender.engine, lender.allocator
            held = {*engine.running.tolist(), *lender.visitors.lent, *engine.loading, *engine.held}
            assert held == set(np.flatnonzero(allocator.resident).tolist())
            assert not lender.visitors.lent & set(engine.running.tolist())
            assert lender.visitors.lent == {request for card, request in rooms if card == number}
            for request in lender.visitors.lent:
                assert allocator.stored[request] == rooms[number, request]
            states = sum(map(len, engine.allocator.state_blocks.held.values())) * lender.block
            assert allocator.reserved_total == int(allocator.reserved.sum()) + states
            assert not lender.visitors.lent & set(engine.allocator.state_blocks.held)
            assert allocator.reserved_total + allocator.free_slots == allocator.slots
        self.looks += 1
        self.lent += len(rooms)


@pytest.mark.parametrize("seed", range(16) if LONG else [1])
def test_every_byte_of_kv_is_somewhere_once_across_loans_moves_ends_and_preemptions(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, options = Watched(monkeypatch), {"link": LINK, "every_s": 0.002}
    options |= {"step_tokens": 24} if seed % 2 else {}
    cluster = {"cards": 3, "placement": "pressure" if seed % 3 else "round_robin"}
    stream = some_long(60, seed)
    metrics = found(stream, {**cluster, "lending": options}, 1280 + 128 * (seed % 4))
    lending = metrics["node"]["lending"]
    assert metrics["finished"] == 60 and watched.looks > 200 and watched.lent and watched.moving
    assert metrics["preemptions"] and lending["sent_tokens"] and lending["moved_tokens"]
    assert lending["sent_tokens"] + lending["moved_tokens"] <= lending["lent_tokens"]


def test_a_request_longer_than_a_card_is_served_only_where_others_lend() -> None:
    stream = requests([0.0], [3000], [40])
    drop = {**ENGINE, "too_long": "drop"}
    assert found(stream, {"cards": 3}, engine={**drop})["dropped"] == 1
    metrics = found(stream, engine={**drop})
    assert metrics["finished"] == 1 and metrics["node"]["lending"]["lent_tokens"] >= 1480
    over = requests([0.0], [4095 - 40], [40])
    assert found(over, tokens=1344, engine={**drop})["dropped"] == 1


@pytest.mark.parametrize(("name", "model", "times"), [
    ("a100-80gb", "qwen2.5-14b-1m", 5.9), ("mlu370-x4", "qwen2.5-7b-1m", 9.7),
])  # fmt: skip
def test_four_cards_that_lend_hold_four_times_as_much_and_tensor_parallelism_keeps_weights_once(
    name: str, model: str, times: float
) -> None:
    shape, chosen = load_model(model), load_device(name)

    def tokens(cards: int) -> int:
        given = ServingSpec.model_validate(
            {"model": model, "tensor_parallel": cards, "activation_bytes": "0B"}
        )
        return kv_region(chosen, model_of_a_card(given, shape), given).slots

    weights, memory = shape.weight_bytes, 0.9 * chosen.capacity_bytes
    closed = (4 * memory - weights) / (memory - weights)
    assert closed == pytest.approx(times, abs=0.05)
    assert tokens(4) / tokens(1) == pytest.approx(closed, rel=0.001)


@functools.cache
def work(*overrides: str, stages: int = 1) -> DistributedAttention:
    return DistributedAttention(SHAPE, load_link(LINK, list(overrides)), 256, stages)


def test_query_partial_result_and_merge_have_their_bytes_in_each_step_and_layer() -> None:
    heads, dim, layers = SHAPE.heads, SHAPE.head_dim, SHAPE.layers
    query, partial = heads * dim * 2, heads * (dim * 2 + 4 + 4)
    assert (work().query_bytes, work().partial_bytes) == (query, partial)
    assert work().merge_bytes(3) == 3 * partial + query
    steps, parts = StepModel(card(2048), SHAPE), [Share(3, 900), Share(2, 100, 64, 500, 32000)]
    asked = work().asks(parts, [False, False], 67, steps, Efficiency())
    assert asked.query_bytes == layers * 69 * query
    assert asked.partial_bytes == layers * 69 * partial
    assert asked.merge_bytes == layers * ((69 + 67) * partial + 67 * query)
    assert asked.read_bytes == 1500 * SHAPE.kv_token_bytes


def stepping(tokens: int | None, bandwidth: str) -> tuple[float, float]:
    """(seconds of a step, KV bytes that it copies) of a lone request that moves away."""
    home: Any = SimpleNamespace(
        landing=0, loans=Loans({0: [Loan(1, 512, 0, 512)]}), step_tokens=tokens
    )
    home.work = work(f"paths=[{{post: 0ns, bandwidth: {bandwidth}}}]", "latency=0ns")
    rooms: Any = SimpleNamespace(fresh=0)
    delays = LendingDelays(home, rooms)
    copied, copy_s = delays._copies(0.01, 0.0)
    return max(0.01, copy_s), copied * SHAPE.kv_token_bytes


def test_moving_tokens_beside_a_step_is_free_until_the_link_takes_longer_than_the_step() -> None:
    rate = 25 * SHAPE.kv_token_bytes * 100  # 25 tokens in a step of 10 ms
    link = f"{rate / 1e6}MB/s"
    assert stepping(16, link)[0] == 0.01
    assert stepping(32, link)[0] == pytest.approx(0.01 * 32 / 25)
    free_s, moved = stepping(None, link)
    assert free_s == pytest.approx(0.01, rel=0.03) and moved == 25 * SHAPE.kv_token_bytes


def test_a_plan_serves_small_batches_first_and_lends_the_longest_request() -> None:
    cards = [
        Holder(4, 100, [(400, 7), (300, 8)], 0), Holder(1, 200, [(150, 3), (100, 4)], 0),
        Holder(0, 0, [], 256), Holder(2, 0, [], 160),
    ]  # fmt: skip
    assert lending_plan(cards, 16) == [
        Grant(1, 2, 3, 144), Grant(1, 3, 4, 64), Grant(0, 2, 7, 112),
    ]  # fmt: skip
    assert lending_plan([Holder(0, 500, [(900, 1)], 0), Holder(0, 0, [], 480)], 16) == []
    part = lending_plan([Holder(3, 500, [(900, 1)], 0, False), Holder(0, 0, [], 480)], 16)
    assert part == [Grant(0, 1, 1, 480)]


FAULTS = [{"replica": at % 3, "at_s": 0.01 + 0.013 * at, "down_s": 0.006} for at in range(9)]


def test_what_a_lender_loses_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    again: list[int] = []
    fails = Lender.fails

    def failing(lender: Lender, number: int) -> None:
        there = [
            request for request, loans in lender.loans.items()
            if any(loan.lender == number and loan.filled for loan in loans)
        ]  # fmt: skip
        fails(lender, number)
        assert not lender.keeps_at(number)
        assert not set(there) & set(lender.engine.running.tolist())
        again.extend(there)

    monkeypatch.setattr(Lender, "fails", failing)
    given = spec(cluster=LENDING, engine=ENGINE, faults=FAULTS)
    metrics = serve(card(1536), SHAPE, given, some_long(60), seed=1).metrics
    assert again and metrics["preemptions"] >= len(again)


@pytest.mark.parametrize("prompt", [257, 264, 327])
def test_two_that_fit_no_card_do_not_wait_for_each_other_for_ever(prompt: int) -> None:
    """Blocks are lent whole: what the first of a line lacks, though its step then has less here."""
    lending = {"cards": 2, "lending": LENDING["lending"]}
    given = spec(cluster=lending, engine={"max_num_batched_tokens": 512, "max_model_len": 1024})
    stream = requests([0.0, 0.0], prompt, 20)
    metrics = serve(device(768), SMALL_WINDOWS, given, stream, seed=1).metrics
    assert metrics["finished"] == 2 and metrics["node"]["lending"]["lent_tokens"] >= 16


def test_what_waits_for_a_controller_that_never_decides_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Lender, "lendable", [])
    with pytest.raises(DescriptionError, match="2 requests have not ended and nothing will give"):
        found(requests([0.0, 0.0], 2500, 20))

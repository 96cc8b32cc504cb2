"""Is KV lent as planned, does it move beside steps, and is what a lender loses computed again?"""

from __future__ import annotations

import dataclasses
import functools
from types import SimpleNamespace
from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.link import load_link
from policies.memory.distributed_attention import DistributedAttention
from policies.requests.requests import Requests
from policies.serving.lending import Grant, Holder, lending_plan
from policies.serving.serving import serve
from policies.transfers.lender import Lender
from policies.transfers.lending_delays import LendingDelays
from policies.transfers.loans import Loan, Loans
from tests.policies.serving.test_moving import LINK, SHAPE, card
from tests.policies.small import WINDOWS as SMALL_WINDOWS
from tests.policies.small import device, mixed, requests, spec

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


def test_a_request_longer_than_a_card_is_served_only_where_others_lend() -> None:
    stream = requests([0.0], [3000], [40])
    drop = {**ENGINE, "too_long": "drop"}
    assert found(stream, {"cards": 3}, engine={**drop})["dropped"] == 1
    metrics = found(stream, engine={**drop})
    assert metrics["finished"] == 1 and metrics["node"]["lending"]["lent_tokens"] >= 1480
    over = requests([0.0], [4095 - 40], [40])
    assert found(over, tokens=1344, engine={**drop})["dropped"] == 1


@functools.cache
def work(*overrides: str, stages: int = 1) -> DistributedAttention:
    return DistributedAttention(SHAPE, load_link(LINK, list(overrides)), 256, stages)


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


def test_what_waits_for_a_controller_that_never_decides_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Lender, "lendable", [])
    with pytest.raises(DescriptionError, match="2 requests have not ended and nothing will give"):
        found(requests([0.0, 0.0], 2500, 20))


@pytest.mark.parametrize("prompt", [257, 264, 327])
def test_two_that_fit_no_card_do_not_wait_for_each_other_for_ever(prompt: int) -> None:
    """Blocks are lent whole: what the first of a line lacks, though its step then has less here."""
    lending = {"cards": 2, "lending": LENDING["lending"]}
    given = spec(cluster=lending, engine={"max_num_batched_tokens": 512, "max_model_len": 1024})
    stream = requests([0.0, 0.0], prompt, 20)
    metrics = serve(device(768), SMALL_WINDOWS, given, stream, seed=1).metrics
    assert metrics["finished"] == 2 and metrics["node"]["lending"]["lent_tokens"] >= 16

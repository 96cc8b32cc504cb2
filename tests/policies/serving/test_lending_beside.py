"""Do cards that lend keep every byte once where cards fail, and beside tiers?"""

from __future__ import annotations

from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from policies.engines.connected import Loads
from policies.serving.serving import serve
from policies.transfers.lender import Lender
from policies.transfers.tier_store import TierStore
from tests.policies.serving.test_lending import (
    ENGINE,
    LENDING,
    SHAPE,
    Watched,
    card,
    found,
    some_long,
)
from tests.policies.serving.test_migration_beside import TIER
from tests.policies.small import WINDOWS, device, requests, spec

COUNT = 60
CARDS = LENDING["cards"]
FAULTS = [{"replica": at % CARDS, "at_s": 0.01 + 0.013 * at, "down_s": 0.006} for at in range(9)]


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
    metrics = serve(card(1536), SHAPE, given, some_long(COUNT), seed=1).metrics
    assert again and metrics["preemptions"] >= len(again)


def test_what_lies_on_several_cards_goes_to_no_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    store, whole = TierStore.store, Loads.whole

    def storing(tiers: TierStore, request: int, *given: Any) -> bool:
        assert not any(request in lender.loans for lender in watched.lenders)
        return store(tiers, request, *given)

    def is_whole(engine: Loads, request: int) -> bool:
        asked.append(whole(engine, request))
        return asked[-1]

    watched = Watched(monkeypatch)
    monkeypatch.setattr(TierStore, "store", storing)
    monkeypatch.setattr(Loads, "whole", is_whole)
    given = spec(cluster=LENDING, engine=ENGINE, tiers=TIER)
    serve(card(1536), SHAPE, given, some_long(COUNT), seed=1)
    assert set(asked) == {False, True}


@pytest.mark.parametrize("prompt", [257, 264, 327])
def test_two_that_fit_no_card_do_not_wait_for_each_other_for_ever(prompt: int) -> None:
    """Blocks are lent whole: what the first of a line lacks, though its step then has less here."""
    lending = {"cards": 2, "lending": LENDING["lending"]}
    given = spec(cluster=lending, engine={"max_num_batched_tokens": 512, "max_model_len": 1024})
    stream = requests([0.0, 0.0], prompt, 20)
    metrics = serve(device(768), WINDOWS, given, stream, seed=1).metrics
    assert metrics["finished"] == 2 and metrics["node"]["lending"]["lent_tokens"] >= 16


def test_what_waits_for_a_controller_that_never_decides_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Lender, "lendable", [])
    with pytest.raises(DescriptionError, match="2 requests have not ended and nothing will give"):
        found(requests([0.0, 0.0], 2500, 20))

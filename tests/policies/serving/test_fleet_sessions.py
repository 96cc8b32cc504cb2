"""Are turns of sessions served once each, in order and after their pause, whichever cards they go
to, and does a router that keeps a session on its card find what the turn before left there?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policies.requests.requests import Requests
from policies.routers.routers import ROUTERS
from policies.serving.serving import ServingResult
from tests.policies.serving.test_closed_loop import closed, in_flight
from tests.policies.serving.test_sessions import COPIES, PLENTY, found_at_most, talks
from tests.policies.small import run
from tests.rotation import LONG, rotated

ALONE: dict[str, Any] = {"system": None, "documents": None}
"""Nothing is shared but by the turns of a session."""
LIMITS = {"max_model_len": 1024}


def fleet(cards: int, placement: str, failures: Any = None, cells: int = 1) -> dict[str, Any]:
    cluster = {"cards": cards, "placement": placement, "cells": cells}
    faults = [] if failures is None else [failures]
    return {"cluster": cluster, "faults": faults, "engine": LIMITS}


def require_turns_in_order(stream: Requests, found: ServingResult) -> None:
    """Each ends once, and is sent its pause after the one before; each token is output once."""
    before = stream.turn_before
    after = np.flatnonzero(before >= 0)
    assert found.metrics["finished"] == len(stream) == np.isfinite(found.finish_s).sum()
    sent_s = found.finish_s[before[after]] + stream.think_s[after]
    assert found.arrival_s[after] == pytest.approx(sent_s)
    assert (found.first_token_s > found.arrival_s).all()
    if found.cell is not None:
        made = int(found.cell.metrics.sums.output_tokens)
        assert made == stream.output_tokens.sum()


@pytest.mark.parametrize(
    ("placement", "policy"),
    rotated(list(ROUTERS), [{"name": "paged"}, {"name": "radix"}, {"name": "static", **COPIES}]),
)
def test_each_turn_runs_once_after_the_one_before_on_any_card(placement: str, policy: Any) -> None:
    stream = talks(50)
    found = run(2048, stream, **fleet(3, placement), policy=policy)
    require_turns_in_order(stream, found)
    single = run(2048, stream, **fleet(3, placement), policy=policy, advance_together=False)
    assert single.finish_s == pytest.approx(found.finish_s, rel=1e-12)


def test_a_session_that_sticks_finds_all_that_its_card_held() -> None:
    """With memory for everything: as on one card; in turn, only what earlier turns left there. The
    tree of `prefix` has prompts alone, so that the turn after a long answer may look like new."""
    stream = talks(60, **ALONE)
    stuck, aware, turns = (
        run(PLENTY, stream, **fleet(3, placement)).metrics["cached_tokens"]
        for placement in ("session", "prefix", "round_robin")
    )
    assert stuck == found_at_most(stream, 16)
    assert 0 < turns < 0.8 * stuck < aware < stuck


def test_one_client_behind_a_router_is_one_card() -> None:
    stream = talks(30, clients=1, **ALONE)
    alone = run(PLENTY, stream, engine=LIMITS)
    behind = run(PLENTY, stream, **fleet(2, "session"))
    assert (behind.arrival_s == alone.arrival_s).all()
    assert (behind.finish_s == alone.finish_s).all()
    for name, rel in (("cached_tokens", 0), ("ttft_s", 1e-9), ("output_tokens_per_s", 0.01)):
        assert behind.metrics[name] == pytest.approx(alone.metrics[name], rel=rel), name


@pytest.mark.parametrize("placement", list(ROUTERS) if LONG else ["session", "round_robin"])
def test_sessions_outlive_the_cards_that_they_were_on(placement: str) -> None:
    stream = talks(50)
    law = {"mean_up_s": 0.05, "down_s": 0.02}
    found = run(2048, stream, **fleet(3, placement, failures=law))
    assert found.metrics["node"]["failures"] > 0
    require_turns_in_order(stream, found)


def test_cells_get_sessions_whole() -> None:
    stream = talks(50)
    require_turns_in_order(stream, run(2048, stream, **fleet(4, "session", cells=2)))


def test_clients_of_a_closed_loop_have_one_request_each_in_a_fleet() -> None:
    found = run(2048, stream := closed(40, 6, 0.1), **fleet(3, "least_requests"))
    assert found.metrics["finished"] == len(stream)
    assert in_flight(found.arrival_s, found.finish_s) == 6

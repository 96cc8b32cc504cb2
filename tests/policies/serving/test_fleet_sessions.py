"""Are turns of sessions served once each, in order and after their pause, whichever cards they go
to, and does a router that keeps a session on its card find what the turn before left there?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policies.requests.requests import Requests
from policies.routers.routers import ROUTERS
from policies.serving.serving import ServingResult
from tests.policies.serving.test_sessions import COPIES, talks
from tests.policies.small import run
from tests.rotation import rotated

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


def test_cells_get_sessions_whole() -> None:
    stream = talks(50)
    require_turns_in_order(stream, run(2048, stream, **fleet(4, "session", cells=2)))

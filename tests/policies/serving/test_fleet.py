"""Does a fleet do what a node does, whoever simulates it, and lose nothing where cards fail?"""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from policies.requests.requests import Requests
from policies.routers.routers import ROUTERS
from policies.serving.recorder import Recorder
from policies.serving.serving import serve, serve_cell
from tests.policies.small import MODEL, device, mixed, run, spec
from tests.rotation import LONG

STREAM = mixed(240)
SHARED = dataclasses.replace(
    STREAM,
    prompt_tokens=STREAM.prompt_tokens + 256,
    prefix_id=np.arange(240) % 7,
    prefix_tokens=np.full(240, 256),
)
"""The same behind one of seven system prompts."""
LINK = "mooncake-rdma-400"
FEW = 240 if LONG else 90


def fleet(
    cards: int, placement: str = "least_requests", failures: Any = None, cells: int = 1
) -> dict[str, Any]:
    cluster = {"cards": cards, "placement": placement, "cells": cells}
    faults = [] if failures is None else [failures]
    return {"cluster": cluster, "faults": faults, "engine": {"max_model_len": 1024}}


def test_steps_advanced_together_are_those_of_single_steps() -> None:
    for placement in ROUTERS if LONG else ("least_kv", "kv_aware"):
        # `kv_aware` sees memory as of a card's last event: equal where decoding evicts nothing
        slots = 8192 if placement == "kv_aware" else 2048
        together = run(slots, SHARED[:60], **fleet(3, placement))
        single = run(slots, SHARED[:60], **fleet(3, placement), advance_together=False)
        assert together.finish_s == pytest.approx(single.finish_s, rel=1e-12)


def test_cells_served_elsewhere_are_those_served_here() -> None:
    """What workers send is pickled; whoever did it, all figures are the same to the last digit."""
    described, where = spec(**fleet(6, cells=3)), device(2048)
    parts = [
        serve_cell(where, MODEL, described, STREAM, cell, seed=5, warmup_requests=30)
        for cell in range(3)
    ]
    sent = [pickle.loads(pickle.dumps(part)) for part in parts]
    here = serve(where, MODEL, described, STREAM, seed=5, warmup_requests=30)
    there = serve(where, MODEL, described, STREAM, seed=5, warmup_requests=30, cells=sent)
    assert there.metrics == here.metrics
    assert np.array_equal(there.finish_s, here.finish_s)


def test_samples_are_served_in_cells() -> None:
    """A sample of a cell is that of the cell served alone; and a request with all of its samples
    counts once."""
    stream = dataclasses.replace(
        STREAM[:FEW], samples=1 + (np.arange(FEW) % 3 == 0), output_tokens=np.full(FEW, 20)
    )
    drafts = {"method": "ngram", "tokens": 2, "acceptance": [0.6, 0.4]}
    sides = {"link": LINK, "prefill": {"replicas": 2}, "decode": {"replicas": 2}}
    for options in ({}, {"pools": sides}):
        described = spec(**fleet(4, cells=2), speculation=drafts, **options)
        both = serve(device(2048), MODEL, described, stream, seed=5, warmup_requests=10)
        parts = [
            serve_cell(device(2048), MODEL, described, stream, cell, seed=5, warmup_requests=10)
            for cell in range(2)
        ]
        assert np.isfinite(both.finish_s).all() and both.metrics["finished"] == FEW
        assert [each.finish_s.tolist() for each in parts] == [
            both.finish_s[cell::2].tolist() for cell in range(2)
        ]
        alone = [each.metrics["prefill_tokens"] for each in parts]
        assert both.metrics["prefill_tokens"] == sum(alone)
        assert both.metrics["output_tokens_per_s"] > max(
            each.metrics["output_tokens_per_s"] for each in parts
        )


LAWS = ({"replica": 4, "at_s": 0.05}, {"share": 0.5, "at_s": 0.05}, {"replica": 4, "mean_up_s": 9})


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("cells", [2, 3])
def test_a_law_of_faults_chooses_among_all_cards_whatever_the_cells(
    law: dict[str, Any], cells: int
) -> None:
    sides = {"link": LINK, "prefill": {"replicas": 6}, "decode": {"replicas": 6}}
    for side, options in ((None, {}), ("decode", {"pools": sides})):
        cluster = {"cards": 12 if side else 6, "cells": cells}
        described = spec(cluster=cluster, faults=[{**law, "side": side}], **options)
        whole = described.faults[0]
        fail = [
            (each.side, cell * 6 // cells + (each.replica or 0))
            for cell in range(cells) for each in described.of_cell(cell, 1).faults
        ]  # fmt: skip
        assert fail == [(side, card) for card in sorted(whole.first_s(6, whole.draws(6, 1)))]


def test_a_prompt_goes_to_the_card_that_has_it_unless_that_is_too_full() -> None:
    """Prefix 0 on card 0, prefix 1 on card 1; then three more with each, in an order in which
    turns would send them elsewhere: 512 tokens that need no prefill outweigh the load. A request
    that shares nothing goes to the card with less KV."""
    prefix = np.array([0, 1, 1, 0, 0, 1, 1, 0, -1])
    stream = Requests(
        np.arange(9, dtype=np.float64), np.full(9, 600), np.full(9, 4),
        prefix_id=prefix, prefix_tokens=np.where(prefix >= 0, 512, 0),
    )  # fmt: skip
    aware, turns = (
        run(8192, stream, **fleet(2, placement)).metrics["prefill_tokens"]
        for placement in ("kv_aware", "round_robin")
    )
    assert aware == 9 * 600 - 6 * 512 < turns


def test_logs_of_several_cells_are_refused() -> None:
    described = spec(**fleet(4, cells=2))
    with pytest.raises(DescriptionError, match="logs are of one run, and cells are 2"):
        serve(device(2048), MODEL, described, STREAM[:20], seed=1, recorder=Recorder())

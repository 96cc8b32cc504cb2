"""Does a fleet do what a node does, whoever simulates it, and lose nothing where cards fail?"""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.description.description import DescriptionError
from policies.requests.requests import Requests
from policies.routers.routers import ROUTERS
from policies.serving.cluster import Manager
from policies.serving.cluster_options import ClusterSpec
from policies.serving.recorder import Recorder
from policies.serving.serving import serve, serve_cell
from tests.policies.small import MODEL, device, mixed, requests, run, spec
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
SEEN = ("ttft_s", "tpot_s", "latency_s", "prefill_tokens", "steps", "preemptions", "makespan_s")


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


def test_cells_that_deal_in_turn_are_one_fleet_that_does() -> None:
    whole = run(2048, STREAM[:FEW], **fleet(6, "round_robin"))
    for cells in (2, 3):
        parts = run(2048, STREAM[:FEW], **fleet(6, "round_robin", cells=cells))
        assert parts.finish_s == pytest.approx(whole.finish_s, rel=1e-12)
        for name in (*SEEN, "batch", "utilization", "kv_stored_share"):
            assert parts.metrics[name] == pytest.approx(whole.metrics[name], rel=1e-9), name
        told, whole_told = parts.metrics["node"], whole.metrics["node"]
        for name in ("requests", "output_tokens", "busy_s", "imbalance"):
            assert told[name] == pytest.approx(whole_told[name], rel=1e-9), name


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


def test_a_card_that_fails_is_one_of_one_cell() -> None:
    law = {"replica": 4, "at_s": 0.05, "down_s": 0.1}
    for cells in (1, 2, 3):
        found = run(2048, STREAM[:FEW], **fleet(6, "round_robin", law, cells)).metrics
        assert found["node"]["failures"] == 1 and found["finished"] == FEW


@given(
    data=st.data(),
    cards=st.integers(2, 5),
    placement=st.sampled_from(list(ROUTERS)),
    policy=st.sampled_from(["paged", "odma", "static", "radix"]),
)
@settings(max_examples=120 if LONG else 6)
def test_what_fails_and_returns_loses_nobody_and_serves_nobody_twice(
    data: st.DataObject, cards: int, placement: str, policy: str
) -> None:
    """Every request ends once, on one card, after its last reroute; every token is output once."""
    law: dict[str, Any] = {"mean_up_s": data.draw(st.floats(0.02, 1.0))}
    if data.draw(st.booleans()):
        law = {"share": data.draw(st.floats(0.01, 0.99)), "at_s": data.draw(st.floats(0, 0.3))}
    law["down_s"] = data.draw(st.floats(0.001, 0.5))
    cells = data.draw(st.sampled_from([1, 2])) if cards == 4 else 1
    options = fleet(cards, placement, failures=law, cells=cells)
    stream = SHARED[:50] if policy == "radix" else STREAM[:50]
    seed = data.draw(st.integers(0, 9))
    found = run(2048, stream, seed, **options, policy={"name": policy})
    metrics, told = found.metrics, found.metrics["node"]
    assert metrics["finished"] == len(stream)
    assert np.isfinite(found.finish_s).all() and (found.first_token_s >= stream.arrival_s).all()
    assert found.cell is None or int(found.cell.metrics.sums.output_tokens) == int(
        stream.output_tokens.sum()
    )
    assert (told["failures"] == 0) <= (told["rerouted"] == told["lost_s"] == told["down_s"] == 0)
    assert run(2048, stream, seed, **options, policy={"name": policy}).metrics == metrics


def test_who_loses_its_card_keeps_its_tokens_and_computes_their_kv_again() -> None:
    """One request of 100 + 50 tokens; its card fails in mid-decode, and the other goes on."""
    stream = requests([0.0], 100, 50)
    alone = run(2048, stream, **fleet(2, "round_robin"))
    half_s = float(alone.first_token_s[0] + alone.finish_s[0]) / 2
    law = {"share": 0.9, "at_s": half_s, "down_s": 1.0}  # both: it waits for the first to return
    both = run(2048, stream, **fleet(2, "round_robin", failures=law))
    assert both.first_token_s[0] == alone.first_token_s[0]
    assert both.metrics["node"]["rerouted"] == 1
    assert both.finish_s[0] == pytest.approx(alone.finish_s[0] + 1.0, rel=0.02)
    again = both.metrics["prefill_tokens"] - 100
    assert 100 + 20 <= again <= 100 + 30
    assert both.metrics["node"]["down_s"] >= 1.0


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


def router_of(placement: str, held: list[float], cached: list[int], **columns: Any) -> int:
    """Where the first of these requests goes."""
    stream = Requests(np.zeros(1), np.full(1, 600), np.full(1, 4), **columns)
    options = {"cards": len(held), "placement": placement}
    manager = Manager(ClusterSpec.model_validate(options), stream, np.ones(1))
    manager.kv_slots[:] = held
    manager.cached = lambda card, request: cached[card]
    return manager.place(0, 0.0)


def test_the_cost_of_a_card_is_its_prefill_and_its_load() -> None:
    """The example of Dynamo's documentation, of 10 blocks of 60 tokens: 8 + 10, 5 + 5, 2 + 9."""
    shares = {"prefix_id": np.zeros(1, np.int64), "prefix_tokens": np.full(1, 600)}
    held, cached = [600.0, 300.0, 540.0], [120, 300, 480]
    assert router_of("kv_aware", held, cached, **shares) == 1
    assert router_of("kv_aware", [600.0, 300.0, 100.0], cached, **shares) == 2
    assert router_of("kv_aware", [10.0, 300.0, 540.0], cached) == 0  # nobody is asked
    assert router_of("least_kv", [20.0, 10.0, 540.0], cached, **shares) == 1


def test_logs_of_several_cells_are_refused() -> None:
    described = spec(**fleet(4, cells=2))
    with pytest.raises(DescriptionError, match="logs are of one run, and cells are 2"):
        serve(device(2048), MODEL, described, STREAM[:20], seed=1, recorder=Recorder())

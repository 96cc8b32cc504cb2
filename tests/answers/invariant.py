"""What has no meaning changes nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import find
from hwmodel.specs.attention import AttentionWindow
from hwmodel.specs.mlp import ExpertsSpec
from policies.requests.requests import Requests
from policies.serving.recorder import Recorder
from tests.answers.draws import Draw
from tests.answers.relation import (
    CLOSE,
    EXACT,
    NEAR,
    Breaches,
    all_at_once,
    invariant,
    not_longer,
    same,
)


@invariant
def another_name(draw: Draw) -> Breaches:
    """A copy of a device under another name is the device."""
    text = find("accelerators", draw.device).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "copy.yaml"
        file.write_text(text.replace(f"name: {draw.device}\n", "name: other\n", 1))
        if "tables: " in text and ".csv" in text:
            raise DescriptionError("it names a file beside it")
        copied = draw._replace(device=str(file))
        yield from same(copied.served(), draw.served())


@invariant
def another_unit(draw: Draw) -> Breaches:
    size = draw.card.capacity_bytes // (1 << 20) * (1 << 20)
    ours, theirs = (
        draw.but(f"capacity={each}").served() for each in (f"{size}B", f"{size >> 20}MiB")
    )
    yield from same(ours, theirs)
    if ours.metrics != theirs.metrics:
        yield "metrics differ"


@invariant
def the_same_seed(draw: Draw) -> Breaches:
    predictor = {"kind": "lognormal", "sigma": 1.0}
    ours, theirs = (draw.but(predictor=predictor).under("odma").served() for _ in "12")
    if repr(ours.metrics) != repr(theirs.metrics):
        yield "metrics differ"


@invariant
def replicas_in_turn(draw: Draw) -> Breaches:
    """Each of a stream several times, on so many cards in turn: one card, several times."""
    many, one = draw.rng.choice((2, 3)), draw.requests
    each = Requests(
        *(np.repeat(x, many) for x in (one.arrival_s, one.prompt_tokens, one.output_tokens))
    )
    found = draw.but(requests=each, cluster={"cards": many, "placement": "round_robin"}).served()
    alone = draw.served()
    for card in range(many):
        if not np.allclose(found.finish_s[card::many], alone.finish_s, rtol=EXACT, atol=0):
            yield f"card {card} of {many} ends otherwise than one alone"


@invariant
def one_card_as_one(draw: Draw) -> Breaches:
    one = draw.but(tensor_parallel=1, cluster={"cards": 1, "stages": 1, "cells": 1})
    yield from same(one.served(), draw.served())


@invariant
def a_router_of_one_card(draw: Draw) -> Breaches:
    router = draw.rng.choice(("least_requests", "pressure", "session", "prefix", "least_kv"))
    yield from same(draw.but(cluster={"placement": router}).served(), draw.served())


@invariant
def a_tier_of_nothing(draw: Draw) -> Breaches:
    """Nothing is shared, so that nothing is found in it; copies take none of the card's time."""
    host = {"link": "nvme-pcie4", "cpu_bytes_to_use": f"{draw.rng.choice((1, 64))}GB"}
    tiers = {"host": host, "contention": False}
    draw = draw.but(policy={"prefix_caching": True})
    yield from same(draw.but(tiers=tiers).served(), draw.served())


@invariant
def prefixes_that_nobody_shares(draw: Draw) -> Breaches:
    yield from same(draw.but(policy={"prefix_caching": True}).served(), draw.served())


@invariant
def a_window_longer_than_all(draw: Draw) -> Breaches:
    if (
        draw.model.window is not None
        or draw.model.state is not None
        or draw.model.attention.halves == 1
    ):
        raise DescriptionError("it has windows, or states, or latents")
    window = AttentionWindow(tokens=draw.model.max_position, pattern=["window", "full"])
    windowed = draw._replace(model=draw.model.model_copy(update={"window": window}))
    yield from same(windowed.served(), draw.served(), CLOSE)


@invariant
def one_expert(draw: Draw) -> Breaches:
    """One expert that each token passes through is a dense MLP, but for its router, where bytes
    bind all products, or FLOPs all. Where either may, experts have a bound of their own, as kernels
    of their own have: the others, among them the head with its few rows, may be bound by bytes
    meanwhile, so that it is slower, by at most the time in which the head is read in each step.
    Where programs have such kernels, it is never faster."""
    own = draw.model
    if own.experts is not None or own.state is not None or own.window is not None:
        raise DescriptionError("it has experts, states or windows")
    one = ExpertsSpec(count=1, per_token=1, intermediate=own.intermediate)
    dense = all_at_once(draw)
    experts = dense._replace(model=own.model_copy(update={"experts": one}))
    yield from not_longer(dense.served(), experts.served(), 0.01)
    alike = "kernels={class: accelerator}"
    for free in ("compute", "weights"):
        ours, theirs = (each.but(alike, free=[free]).served() for each in (experts, dense))
        yield from same(ours, theirs, 0.01)
    ours, theirs = (each.but(alike).served() for each in (experts, dense))
    yield from not_longer(theirs, ours, 0.01)
    head_bytes = own.vocabulary * own.hidden * 2  # in no format is it wider
    head_s = head_bytes / (draw.card.peak_gbps * 1e9 * draw.changes["memory"]["efficiency"])
    more_s = ours.metrics["makespan_s"] - theirs.metrics["makespan_s"]
    if more_s > 0.01 * theirs.metrics["makespan_s"] + head_s * ours.metrics["steps"]:
        yield f"with one expert all requests took {more_s:.3g} s more"


@invariant
def steps_one_by_one(draw: Draw) -> Breaches:
    yield from same(draw.but(advance_together=False).served(), draw.served(), 1e-9)


@invariant
def more_places_than_requests(draw: Draw) -> Breaches:
    many = len(draw.requests)
    ours, theirs = (
        draw.but(engine={"max_num_seqs": each}, activation_bytes="256MiB").served()
        for each in (many, many + 100)
    )
    yield from same(ours, theirs)


@invariant
def the_room_that_it_has(draw: Draw) -> Breaches:
    found = draw.served()
    tokens = found.metrics["kv_capacity_tokens"]
    yield from same(draw.but(kv_tokens=tokens).served(), found)


@invariant
def a_later_day(draw: Draw) -> Breaches:
    later_s, one = 2.0 ** draw.rng.randint(0, 12), draw.requests
    later = Requests(one.arrival_s + later_s, one.prompt_tokens, one.output_tokens)
    ours, theirs = draw.but(requests=later).served(), draw.served()
    if not np.allclose(ours.finish_s - later_s, theirs.finish_s, rtol=NEAR, atol=1e-9):
        yield f"{later_s} s later the same requests take otherwise"


@invariant
def equals_that_come_together(draw: Draw) -> Breaches:
    """Requests at once in another order: as many ends, at the same times, where all are alike."""
    count, prompt, output = (
        draw.rng.randint(2, 40),
        draw.rng.randint(1, 600),
        draw.rng.randint(2, 60),
    )
    alike = Requests(np.zeros(count), np.full(count, prompt), np.full(count, output))
    found = draw.but(requests=alike).served()
    if (np.diff(found.finish_s) < -EXACT).any():
        yield "of equals a later one ends before an earlier one"


@invariant
def a_fault_after_the_end(draw: Draw) -> Breaches:
    fault = {"at_s": 1e9, "down_s": 1.0}
    yield from same(draw.but(faults=[fault]).served(), draw.served())


@invariant
def the_order_of_free_blocks(draw: Draw) -> Breaches:
    """With a given efficiency, and no prefix to find, it matters not where blocks lie."""
    orders = draw.rng.sample(("fifo", "lifo", "sorted", "buddy"), 2)
    ours, theirs = (draw.but(policy={"free_list": each}).served() for each in orders)
    yield from same(ours, theirs)


@invariant
def turns_of_one(draw: Draw) -> Breaches:
    """Sessions of one turn each are requests."""
    one = draw.requests
    alone = Requests(
        one.arrival_s, one.prompt_tokens, one.output_tokens, session=np.arange(len(one))
    )
    yield from same(draw.but(requests=alone).served(), draw.served())


@invariant
def a_recorder(draw: Draw) -> Breaches:
    yield from same(draw.served(recorder=Recorder()), draw.served())


@invariant
def what_is_never_reached(draw: Draw) -> Breaches:
    """Limits that no request comes to."""
    longest = int((draw.requests.prompt_tokens + draw.requests.output_tokens).max())
    limit = {"max_tokens": longest, "too_long": "drop"}
    yield from same(draw.but(engine=limit).served(), draw.served())

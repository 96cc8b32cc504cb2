"""More of what serves never serves less."""

from __future__ import annotations

from hwmodel.description.description import DescriptionError
from policies.requests.slo import Slo
from sweeps.ask.fit_section import record
from tests.answers.draws import Draw
from tests.answers.relation import (
    CLOSE,
    EXACT,
    NEAR,
    Breaches,
    all_at_once,
    alone_with,
    equal,
    fitted,
    monotone,
    not_longer,
)


@monotone
def more_bandwidth(draw: Draw) -> Breaches:
    draw = all_at_once(draw)
    share = draw.changes["memory"]["efficiency"]
    more = draw.but(memory={"efficiency": min(1.0, share * draw.rng.uniform(1, 3))})
    yield from not_longer(more.served(), draw.served())


@monotone
def more_flops(draw: Draw) -> Breaches:
    draw = all_at_once(draw)
    assert draw.card.accelerator is not None
    share = draw.card.accelerator.compute.prefill_efficiency
    more = draw.but(f"compute.prefill_efficiency={min(1.0, share * 1.5)}")
    yield from not_longer(more.served(), draw.served())


@monotone
def a_shorter_host_overhead(draw: Draw) -> Breaches:
    draw = all_at_once(draw)
    yield from not_longer(
        draw.but("kernels.host=1us").served(), draw.but("kernels.host=2ms").served()
    )


def _linked(draw: Draw, gbps: float, us: float) -> Draw:
    link = f"link={{bandwidth: {gbps:.3f}GB/s, latency: {us:.3f}us}}"
    return all_at_once(draw).but(link, tensor_parallel=2)


@monotone
def a_wider_link(draw: Draw) -> Breaches:
    gbps, us = draw.rng.uniform(4, 400), draw.rng.uniform(1, 30)
    more = gbps * draw.rng.uniform(1, 4)
    yield from not_longer(_linked(draw, more, us).served(), _linked(draw, gbps, us).served())


@monotone
def a_link_of_less_latency(draw: Draw) -> Breaches:
    gbps, us = draw.rng.uniform(4, 400), draw.rng.uniform(1, 30)
    less = us * draw.rng.uniform(0.1, 1)
    yield from not_longer(_linked(draw, gbps, less).served(), _linked(draw, gbps, us).served())


@monotone
def more_cards(draw: Draw) -> Breaches:
    draw, cards = all_at_once(draw), draw.rng.choice((2, 3, 4))
    many = draw.but(
        cluster={"cards": cards, "placement": draw.rng.choice(("round_robin", "least_requests"))}
    )
    yield from not_longer(many.served(), draw.served())


@monotone
def more_room(draw: Draw) -> Breaches:
    """With room for all at once nobody is preempted; who lacks it computes some things again."""
    draw = all_at_once(draw)
    whole = int((draw.requests.prompt_tokens + draw.requests.output_tokens + 16).sum())
    most = int((draw.requests.prompt_tokens + draw.requests.output_tokens).max())
    tight = draw.but(kv_tokens=max(most + 64, int(whole * draw.rng.uniform(0.2, 0.9))))
    wide = draw.but(kv_tokens=whole + 1024)
    ours, theirs = wide.served().metrics, tight.served().metrics
    if ours["preemptions"] or ours["prefill_tokens"] > theirs["prefill_tokens"]:
        yield f"with room {ours['preemptions']} preemptions, {ours['prefill_tokens']} computed"


@monotone
def a_later_objective(draw: Draw) -> Breaches:
    found, outputs = draw.served(), draw.requests.output_tokens
    times = found.arrival_s, found.first_token_s, found.finish_s
    before = -1.0
    for factor in (0.0, 0.5, 1.0, 2.0, 1e9):
        slo = Slo.model_validate(
            {"ttft": f"{max(factor, 1e-9):.9f}s", "tpot": f"{max(0.05 * factor, 1e-9):.9f}s"}
        )
        share = float(slo.attained(*times, outputs).mean())
        if share < before:
            yield f"{share} attain {factor} s, and {before} an earlier one"
        before = share
    if before != 1:
        yield f"{before} attain an objective of 30 years"


@monotone
def a_longer_prompt(draw: Draw) -> Breaches:
    prompt, more = draw.rng.randint(1, 2000), draw.rng.randint(1, 1000)
    short, long = (alone_with(draw, each, 8).served() for each in (prompt, prompt + more))
    if long.first_token_s[0] < short.first_token_s[0] * (1 - EXACT):
        yield f"{prompt + more} tokens have a first token before {prompt}"


@monotone
def a_longer_answer(draw: Draw) -> Breaches:
    prompt, output = draw.rng.randint(1, 1000), draw.rng.randint(2, 200)
    short, long = (alone_with(draw, prompt, each).served() for each in (output, output + 1))
    if long.finish_s[0] <= short.finish_s[0]:
        yield f"{output + 1} tokens end before {output}"
    yield from equal("first token", long.first_token_s[0], short.first_token_s[0])


@monotone
def company(draw: Draw) -> Breaches:
    """Nobody is answered sooner because others are there."""
    found = draw.served()
    for request in draw.rng.sample(range(len(draw.requests)), 2):
        length = draw.requests.prompt_tokens[request], draw.requests.output_tokens[request]
        alone = alone_with(draw, *map(int, length)).served()
        for name, own in (("first", alone.first_token_s), ("last", alone.finish_s)):
            times = found.first_token_s if name == "first" else found.finish_s
            if times[request] - found.arrival_s[request] < own[0] * (1 - NEAR):
                yield f"the {name} token of request {request} comes sooner among others"


@monotone
def more_capacity(draw: Draw) -> Breaches:
    own = draw.card.capacity_bytes
    less = f"capacity={int(own * draw.rng.uniform(0.8, 1)) >> 20}MiB"
    ours, theirs = record(fitted(draw)), record(fitted(draw, less))
    for key in ("kv_tokens", "requests_at_once"):
        if ours[key] < theirs[key]:
            yield f"{key}: {ours[key]} with more, {theirs[key]} without"


@monotone
def narrower_weights(draw: Draw) -> Breaches:
    wide, narrow = fitted(draw, weights=None), fitted(draw, weights="int8")
    if narrow.model.weight_bytes > wide.model.weight_bytes:
        raise DescriptionError("its own are narrower")
    if narrow.layout.tokens < wide.layout.tokens:
        yield f"{narrow.layout.tokens} tokens of KV beside int8, {wide.layout.tokens} before"


@monotone
def narrower_kv(draw: Draw) -> Breaches:
    wide, narrow = fitted(draw), fitted(draw, kv="fp8")
    if narrow.model.kv_token_bytes > wide.model.kv_token_bytes:
        raise DescriptionError("its own is narrower")
    if narrow.layout.tokens < wide.layout.tokens:
        yield f"{narrow.layout.tokens} tokens in fp8, {wide.layout.tokens} in its own format"


@monotone
def a_larger_batch(draw: Draw) -> Breaches:
    """Many at once make more tokens a second than one, and each of them later."""
    found = fitted(draw)
    if found.full.tokens_per_s < found.alone.tokens_per_s * (1 - EXACT):
        yield f"{found.held} at once make {found.full.tokens_per_s}, one {found.alone.tokens_per_s}"
    if found.full.seconds < found.alone.seconds * (1 - EXACT):
        yield f"a step of {found.held} takes {found.full.seconds}, of one {found.alone.seconds}"


@monotone
def drafts_that_never_hold(draw: Draw) -> Breaches:
    """With kernels of a law without steps: those of Apple's GPUs have others for up to 8 rows,
    which are measured to be slower than those for more."""
    never = {"method": "ngram", "tokens": draw.rng.randint(1, 4), "acceptance": [0.0] * 4}
    draw = all_at_once(draw).but("kernels={class: accelerator}")
    with_drafts = draw.but(speculation=never).served()
    if with_drafts.metrics["speculation"]["accepted"]:
        yield "drafts were accepted"
    yield from not_longer(draw.served(), with_drafts, CLOSE)


@monotone
def drafts_that_always_hold(draw: Draw) -> Breaches:
    """More of them hold: fewer steps."""
    often, seldom = sorted((draw.rng.random(), draw.rng.random()), reverse=True)
    steps = [
        alone_with(draw, 100, 120).but(speculation={
            "method": "ngram", "tokens": 2, "acceptance": [round(p, 3), round(p * p, 3)]})
        .served().metrics["steps"] for p in (1.0, often, seldom, 0.0)
    ]  # fmt: skip
    if steps[0] != min(steps) or steps[3] != max(steps):
        yield f"steps with drafts that hold always, often, seldom, never: {steps}"

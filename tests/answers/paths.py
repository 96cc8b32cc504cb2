"""Two ways to one number."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import bankwise
from hwmodel.description.description import DescriptionError
from hwmodel.specs.link import load_link
from policies.requests.requests import Requests, load_trace
from policies.serving.serving import serve as serve_requests
from policies.serving.serving_spec import ServingSpec
from sweeps.ask.fit_section import record
from sweeps.plan.experiment import (
    ExperimentSpec,
    Task,
    requests_of,
    run_task,
    serving_seed,
    workload_of,
)
from tests.answers.draws import Draw, stream
from tests.answers.relation import (
    EXACT,
    NEAR,
    Breaches,
    alone_with,
    equal,
    fitted,
    invariant,
    two_paths,
)


@two_paths
def a_fit_and_a_run_alone(draw: Draw) -> Breaches:
    prompt, output = draw.rng.randint(50, 1500), draw.rng.randint(10, 200)
    found = fitted(draw, prompt=prompt, output=output, limit=max(output, 16))
    spec = found.question.spec(draw.model)
    even = found.efficiency.weights if draw.card.given is None else None
    memory = spec.memory.model_copy(update={"efficiency": even})
    alone = alone_with(draw, prompt, output).requests
    run = serve_requests(
        draw.card, draw.model, spec.model_copy(update={"memory": memory}), alone, seed=1
    )
    metrics = run.metrics
    yield from equal("tokens of KV", found.layout.tokens, metrics["kv_capacity_tokens"])
    yield from equal("first token", found.prefill.seconds, metrics["ttft_s"]["mean"], 0.05)
    yield from equal("token", found.alone.seconds, metrics["tpot_s"]["mean"], 0.05)


@two_paths
def a_fit_s_memory(draw: Draw) -> Breaches:
    found = fitted(draw)
    said = record(found)
    yield from equal("a card", sum(found.memory().values()), draw.card.capacity_bytes)
    left = said["memory_bytes"]["KV"] - said["kv_tokens"] * said["kv_bytes_a_token"]
    if not 0 <= left < said["kv_bytes_a_token"]:
        yield f"{said['kv_tokens']} tokens of {said['kv_bytes_a_token']} B leave {left} B"
    if said["kv_bytes_a_token"] < found.part.kv_token_bytes:
        yield f"{said['kv_bytes_a_token']} B a token, of {found.part.kv_token_bytes} in its layers"


@two_paths
def tokens_and_times(draw: Draw) -> Breaches:
    found = draw.served()
    metrics, requests = found.metrics, draw.requests
    made = metrics["makespan_output_tokens_per_s"] * metrics["makespan_s"]
    yield from equal("tokens", made, float(requests.output_tokens.sum()), 1e-9)
    yield from equal("requests", metrics["finished"], len(requests))
    since_s = found.finish_s.max() - found.arrival_s.min()
    yield from equal("makespan", metrics["makespan_s"], float(since_s), 1e-9)
    yield from equal("computed", metrics["prefill_tokens"], float(requests.prompt_tokens.sum())
                      if not metrics["preemptions"] else metrics["prefill_tokens"])  # fmt: skip


@two_paths
def percentiles(draw: Draw) -> Breaches:
    found, outputs = draw.served(), draw.requests.output_tokens
    ttft, latency = found.first_token_s - found.arrival_s, found.finish_s - found.arrival_s
    tpot = (found.finish_s - found.first_token_s) / np.maximum(outputs - 1, 1)
    for name, times in (("ttft_s", ttft), ("latency_s", latency), ("tpot_s", tpot[outputs > 1])):
        yield from equal(f"mean {name}", found.metrics[name]["mean"], float(times.mean()), 1e-9)
        for share in (50, 90, 99):
            own = float(np.percentile(times, share))
            yield from equal(f"{name} p{share}", found.metrics[name][f"p{share}"], own, 1e-9)


@two_paths
def shares_of_time(draw: Draw) -> Breaches:
    metrics = draw.served().metrics
    yield from equal("limits", sum(metrics["limit_share"].values()), 1.0, 1e-9)
    busy = 1 - metrics["limit_share"]["idle"]
    if not 0 < busy <= 1 + EXACT:
        yield f"it is busy {busy} of the time"


@two_paths
def energy_and_its_parts(draw: Draw) -> Breaches:
    analytic = {**draw.changes, "memory": {"fidelity": "analytic"}}
    metrics = draw._replace(changes=analytic).served().metrics
    if (energy := metrics["energy"]) is None:
        raise DescriptionError("its energy is not known")
    parts = sum(energy["parts_mj_per_token"].values())
    yield from equal("mJ a token", energy["mj_per_token"], parts, 1e-9)
    per_joule = metrics["tokens_per_joule"]["dram"]
    yield from equal("tokens a joule", per_joule * energy["mj_per_token"], 1000.0, 1e-9)
    if not energy["low_mj_per_token"] <= energy["mj_per_token"] <= energy["high_mj_per_token"]:
        yield "it is outside of what its constants may be"


@two_paths
def tokens_over_price(draw: Draw) -> Breaches:
    cards, price = draw.rng.choice((1, 2, 3)), draw.rng.randint(100, 50_000)
    found = draw.but(f"price={{card: {price}, gb: 0}}", cluster={"cards": cards}).served().metrics
    each = found["tokens_per_s_per_kusd"] * cards * found["card_usd"] / 1000
    yield from equal("tokens a second", each, found["output_tokens_per_s"], 1e-9)
    assert draw.card.accelerator is not None
    further = draw.card.accelerator.memories.values()
    whole = price + sum((each.price_gb or 0.0) * each.capacity / 1e9 for each in further)
    yield from equal("price", found["card_usd"], whole)


@two_paths
def halves_of_a_fleet(draw: Draw) -> Breaches:
    """Two cells with a router each serve every other request, as each would by itself."""
    one = draw.requests
    cells = {"cards": 4, "cells": 2, "placement": "least_requests"}
    whole = draw.but(cluster=cells).served()
    for half in range(2):
        rows = one.take(np.arange(half, len(one), 2))
        alone = draw.but(
            requests=rows, cluster={"cards": 2, "placement": "least_requests"}
        ).served()
        if not np.allclose(whole.finish_s[half::2], alone.finish_s, rtol=EXACT, atol=0):
            yield f"cell {half} ends otherwise than alone"


@two_paths
def a_closed_loop_by_its_clients(draw: Draw) -> Breaches:
    """No more are under way than there are clients, and Little's law holds of them."""
    one, clients = stream(draw.rng, 24, at_once=True), draw.rng.randint(1, 8)
    think_s = np.where(np.arange(24) < clients, np.nan, 0.0)
    closed = Requests(one.arrival_s, one.prompt_tokens, one.output_tokens, think_s=think_s)
    found = draw.but(requests=closed).served()
    times = np.concatenate([found.arrival_s, found.finish_s])
    change = np.concatenate([np.ones(24), -np.ones(24)])[np.lexsort((-np.arange(48), times))]
    if np.cumsum(change).max() > clients:
        yield f"{np.cumsum(change).max()} are under way of {clients} clients"
    under_way = float((found.finish_s - found.arrival_s).sum())
    if under_way > clients * found.finish_s.max() * (1 + NEAR):
        yield f"{under_way} request-seconds in {found.finish_s.max()} s of {clients} clients"


@two_paths
def drafts_of_a_request_alone(draw: Draw) -> Breaches:
    """Each step makes one token and those of its drafts that hold: all of them, or each with its
    probability."""
    tokens, output = draw.rng.randint(1, 4), 301
    alone = alone_with(draw, 100, output).but(engine={"max_tokens": output})

    def steps(acceptance: list[float]) -> int:
        spec = {"method": "ngram", "tokens": tokens, "acceptance": acceptance}
        return int(alone.but(speculation=spec).served().metrics["steps"])

    always = 1 + -(-(output - 1) // (1 + tokens))
    yield from equal("steps with drafts that hold", steps([1.0] * tokens), always)
    seldom = draw.rng.uniform(0.3, 0.8)
    holds = [round(seldom**place, 6) for place in range(1, tokens + 1)]
    yield from equal(f"steps where {holds} hold", steps(holds), output / (1 + sum(holds)), 0.25)


@two_paths
def pools_and_their_sides(draw: Draw) -> Breaches:
    """Who is alone has its first token when a card that does both would give it, and the rest of
    its answer later by no less than its KV takes over the link."""
    prompt, output = draw.rng.randint(200, 1500), draw.rng.randint(8, 100)
    alone = alone_with(draw, prompt, output)
    sides = {"prefill": {"replicas": 1}, "decode": {"replicas": 1}, "link": "nixl-cuda-ipc"}
    both, apart = alone.served(), alone.but(pools=sides).served()
    first, last = ([float(getattr(each, name)[0]) for each in (both, apart)]
                   for name in ("first_token_s", "finish_s"))  # fmt: skip
    yield from equal("first token", *first)
    later_s = last[1] - last[0]
    paths = load_link("nixl-cuda-ipc").paths
    least_s = draw.shard.kv_held_bytes(prompt) / sum(path.bandwidth for path in paths)
    if not least_s * (1 - NEAR) <= later_s:
        yield f"apart it ends {later_s} s later, and its KV takes {least_s} s over the link"


@two_paths
def an_experiment_and_its_serving(draw: Draw) -> Breaches:
    """A replication of a sweep's point, and its requests served by hand."""
    spec = ServingSpec.model_validate({"model": draw.model.name, **draw.changes})
    point = ExperimentSpec.model_validate({
        "device": draw.device, "model": draw.model.name, "workload": "azure-conv",
        "serving": spec, "arrivals": {"process": "all_at_once"}, "requests": 20,
        "seed": draw.seed,
    })  # fmt: skip
    found = run_task(Task(point, 1, None))
    requests = requests_of(point, 1, None, workload_of(point))
    by_hand = serve_requests(
        draw.card, draw.model, spec, requests, seed=serving_seed(point, 1)
    ).metrics
    if repr(by_hand) != repr(found):
        yield "metrics differ"


@two_paths
def a_trace_of_the_same_requests(draw: Draw) -> Breaches:
    """Requests that are written as a trace and read again are served alike."""
    one = draw.requests
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.csv"
        rows = zip(one.arrival_s.tolist(), one.prompt_tokens, one.output_tokens, strict=True)
        lines = [f"{at_s!r},{prompt},{output}" for at_s, prompt, output in rows]
        file.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines, ""]))
        read = load_trace(str(file))
    assert read.arrival_s is not None
    again = Requests(read.arrival_s, read.prompt_tokens, read.output_tokens)
    later = Requests(one.arrival_s - one.arrival_s[0], one.prompt_tokens, one.output_tokens)
    times = [draw.but(requests=each).served() for each in (again, later)]
    if not np.allclose(
        times[0].finish_s - again.arrival_s[0], times[1].finish_s, rtol=NEAR, atol=1e-9
    ):
        yield "what is read again ends otherwise"


@invariant
def the_order_of_competitors(draw: Draw) -> Breaches:
    """Each point of a sweep is the same wherever it stands on its axis."""
    policies = draw.rng.sample(("paged", "static", "odma", "s3", "orca", "oracle"), 3)
    changes = {key: value for key, value in draw.changes.items() if key != "policy"}
    found = []
    for order in (policies, policies[::-1]):
        sweep = {
            "kind": "sweep", "name": "order", "summary": "order of competitors",
            "axes": {"serving.policy": order}, "compare": "serving.policy",
            "base": {
                "device": draw.device, "model": draw.model.name, "workload": "alpaca",
                "serving": {**changes, "predictor": {"kind": "lognormal", "sigma": 0.5}},
                "load": {"rate_per_s": 5}, "requests": 10, "seed": draw.seed, "replications": 1,
            },
        }  # fmt: skip
        found.append({
            name: repr(bankwise.simulate(sweep, point)["metrics"])
            for point, name in enumerate(order)
        })  # fmt: skip
    if found[0] != found[1]:
        yield "a point differs where it stands elsewhere"

"""The runs that `size` rests on: a target, what is asked about it, and what becomes of requests."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.accelerator import GIVEN, GivenMemory
from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import PolicyOptions
from policies.allocators.capabilities import Learns, offers
from policies.allocators.paged import PagedOptions
from policies.allocators.registry import POLICIES
from policies.requests.arrivals import Arrivals, ExponentialTime
from policies.requests.request_stream import generate
from policies.requests.requests import Requests
from policies.requests.slo import Slo
from policies.requests.workload import WorkloadSpec
from policies.serving.cluster_options import ClusterSpec
from policies.serving.rates import closed_form_share
from policies.serving.serving import serve
from policies.serving.serving_spec import ServingSpec
from sweeps.plan.saturation import (
    ALL_AT_ONCE,
    MANY,
    Capacity,
    Pace,
    Served,
    average,
    capacity,
    means,
)

WARMUP, REQUESTS, SEED = 50, 200, 1
"""Of a run at a rate (assumed)."""
ROUNDS_BEFORE, ROUNDS = 3, 10
"""Answers that each user gets before those that count, and of those that count, at least (assumed):
all users send their first request at once."""
DRAWS = 4
"""Runs at a rate, of other requests each (assumed). Where memory fills, the share that attains an
objective differs by 0.15 from one to the next (rtx-4090, sharegpt): of four 0.08, so 4 % of a
rate. A rate that is taken from one run alone is one at which that run was lucky."""
PROFILED = (SEED, 1, 1)
"""Seed of the earlier requests that a policy which learns has profiled."""
SATURATED = 768
"""Requests of the first run in which all wait (`sweeps.plan.saturation`)."""


class Target(NamedTuple):
    """What is to be served, and how much of it how well."""

    model: TransformerSpec
    workload: WorkloadSpec
    slo: Slo | None
    """None: any latency will do."""
    load: float
    """Requests a second; without `slo` output tokens a second; with `think_s` users."""
    cards: int | None
    """Of a replica; None: the fewest that hold the model."""
    weights: str | None = None
    """The one format of the weights that is asked about; None: the model's own, and narrower
    ones."""
    kv: str | None = None
    """Format of the KV; None: the model's own."""
    policy: PolicyOptions = PagedOptions()
    """Lengths are predicted exactly."""
    think_s: float | None = None
    """Of users, from an answer to their next request; None: requests come at a rate."""
    drawn: bool = False
    """Whether users think for exponential times of that mean. With memory faster than any card's,
    users who all think for the same time stay in step: they ask together, and the first token is
    late though the card idles."""
    at_once: bool = False
    """Whether users who wait for room do not count."""
    mean_output: float = math.nan
    """Output tokens of a request, of all its samples: of the workload."""

    @property
    def gathers(self) -> bool:
        """Whether its policy scatters KV, so that reading it slower may be asked about."""
        return isinstance(self.policy, PagedOptions)

    def unit(self, tokens: str = "out tok/s") -> str:
        """What its load is counted in; tokens: a word for output tokens a second."""
        if self.slo is None:
            return tokens
        if self.at_once:
            return "at once"
        return "requests/s" if self.think_s is None else "users"


class SizingQuestion(NamedTuple):
    """One question. `load`: the largest that the device carries; `bandwidth`: the least of the
    device that meets the target, delivered B/s; `gather`: the least ratio that does; `replicas`:
    the fewest that do."""

    what: Literal["load", "bandwidth", "gather", "replicas"]
    target: Target
    device: Device
    weights: str | None = None
    capacity: int | None = None
    guess: int = 1
    """Replicas that are tried first."""


class SizingRun(NamedTuple):
    """What became of the requests that count."""

    attained: float
    """Share of them that attain the objective."""
    per_s: float
    """Requests a second."""


def delivered(device: Device) -> float:
    """Bytes a second that reach the engines of a device at best."""
    return device.peak_gbps * 1e9 * closed_form_share(device)


def served(
    question: SizingQuestion,
    bandwidth: float,
    load: float,
    slower: float | None = None,
    draw: int = 1,
    replicas: int = 1,
) -> SizingRun:
    """One run at a rate, or with so many users. Raises DescriptionError."""
    target = question.target
    assert target.slo is not None
    requests, warm = requests_of(target, load, draw, replicas)
    spec = _serving(question, slower, replicas)
    device = _with(question.device, bandwidth, question.capacity)
    found = serve(
        device,
        target.model,
        spec,
        requests,
        seed=1,
        warmup_requests=warm,
        profile=_profile(question),
    )
    times = (found.arrival_s, found.first_token_s, found.finish_s)
    attained = target.slo.attained(*times, requests.output_tokens)[warm:]
    latency_s = float(found.metrics["latency_s"]["mean"])
    per_s = load if target.think_s is None else load / (_thought_s(requests, warm) + latency_s)
    return SizingRun(float(attained.mean()), per_s)


def _thought_s(requests: Requests, warm: int) -> float:
    """Mean seconds from an answer to the next request of a user."""
    return float(np.nanmean(requests.think_s[warm:]))


def _serving(asked: SizingQuestion, slower: float | None, replicas: int) -> ServingSpec:
    target, policy = asked.target, asked.target.policy
    if slower is not None:
        policy = policy.model_copy(update={"indirection": slower})
    return ServingSpec(
        model=target.model.name, weights=asked.weights or target.weights, kv=target.kv,
        tensor_parallel=target.cards or 1, policy=policy,
        cluster=ClusterSpec(cards=replicas, placement="least_requests") if replicas > 1
        else ClusterSpec(),
    )  # fmt: skip


def _profile(asked: SizingQuestion) -> Requests | None:
    if not offers(POLICIES[asked.target.policy.name], Learns):
        return None
    waiting = asked.target.workload.model_copy(update={"arrivals": ALL_AT_ONCE})
    return generate(waiting, WARMUP, None, PROFILED)


def capacity_of(
    question: SizingQuestion,
    bandwidth: float,
    slower: float | None = None,
    against: float | None = None,
) -> Capacity:
    """Of one replica; against: a load from which it is enough to tell it. Raises
    DescriptionError."""
    target, workload = question.target, average(question.target.workload)
    spec, profile = _serving(question, slower, 1), _profile(question)
    device = _with(question.device, bandwidth, question.capacity)

    def draw(count: int, arrivals: Arrivals) -> Requests:
        return generate(workload.model_copy(update={"arrivals": arrivals}), count, None, (SEED, 1))

    def serve_all(requests: Requests, pace: Pace) -> Served:
        found = serve(
            device, target.model, spec, requests, seed=1, profile=profile, watchers=[pace]
        )
        return Served(requests, found)

    return capacity(serve_all, draw, SATURATED, 1, against)


def requests_of(target: Target, load: float, draw: int, replicas: int) -> tuple[Requests, int]:
    """The requests of a run, and how many of them do not count."""
    if target.think_s is None:
        warm = WARMUP * replicas
        return generate(target.workload, warm + REQUESTS * replicas, load, (SEED, draw)), warm
    users = int(load)
    drawn = target.drawn and target.think_s > 0
    think = ExponentialTime(mean_s=target.think_s) if drawn else target.think_s
    arrivals = Arrivals(process="closed", clients=users, think_s=think)
    turns = _turns(target)
    warm = max(WARMUP, math.ceil(ROUNDS_BEFORE * turns * users))
    counted = max(REQUESTS, math.ceil(ROUNDS * turns * users))
    closed = target.workload.model_copy(update={"arrivals": arrivals})
    return generate(closed, warm + counted, None, (SEED, draw)), warm


def _turns(target: Target) -> float:
    """Requests of a session, on average; 1 where there are no sessions."""
    law = target.workload.lengths.sessions
    return 1.0 if law is None else law.mean_turns


def mean_output(workload: WorkloadSpec) -> float:
    """Output tokens of a request, of all its samples. Raises DescriptionError where no rate can be
    asked for."""
    process = workload.arrivals.process
    if process in ("all_at_once", "closed"):
        raise DescriptionError(f"expected arrivals that have a rate; got {process}", "--workload")
    waiting = average(workload).model_copy(update={"arrivals": ALL_AT_ONCE})
    return means(generate(waiting, MANY, None, (SEED, 1))).output


def _with(device: Device, bandwidth: float, capacity: int | None) -> Device:
    """The device with memory that delivers this bandwidth, and of this capacity; shares that are
    given of weights and of KV stay as they are to each other."""
    if device.accelerator is None:
        raise DescriptionError(f"{device.name} is a memory; serving needs an accelerator")
    if device.given is not None:
        given = device.given.model_copy(update={"bandwidth": bandwidth / device.given.efficiency})
    else:
        given = GivenMemory.model_construct(bandwidth=bandwidth, efficiency=1.0)
    update = {"memory": GIVEN, "given": given, "capacity": capacity or device.capacity_bytes}
    accelerator = device.accelerator.model_copy(update=update)
    return replace(device, described=None, accelerator=accelerator)

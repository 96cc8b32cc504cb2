"""What it takes to serve a load: which device, which bandwidth, capacity, weights, gather cost.

Every question is answered by serving the workload, by one policy, with memory that delivers one
given bandwidth wherever KV lies: of a described device its peak times the share that is given, or
the closed-form bound of sequential reads times `derate`. So simulated devices are taken at their
best, and what scattered reads may cost is asked for by itself: `gather`, the bandwidth of scattered
KV over that of contiguous KV in decode attention (1 / `indirection` of docs/memory-time.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.accelerator import GIVEN, GivenMemory
from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import PolicyOptions
from policies.allocators.capabilities import Learns
from policies.allocators.paged import PagedOptions
from policies.allocators.registry import POLICIES
from policies.placements.interleaved import InterleavedOptions
from policies.requests.arrivals import Arrivals
from policies.requests.request_stream import generate
from policies.requests.requests import Requests
from policies.requests.slo import Slo
from policies.requests.workload import WorkloadSpec
from policies.serving.rates import closed_form_share
from policies.serving.serving import serve
from policies.serving.serving_spec import ServingSpec
from sweeps.plan.bisection import NoRate
from sweeps.plan.experiment import ExperimentSpec, Load, Task, run_task
from sweeps.run.goodput import largest_rate

WARMUP, REQUESTS, SEED = 50, 200, 1
"""Of a run at a rate (assumed)."""
DRAWS = 4
"""Runs at a rate, of other requests each (assumed). Where memory fills, the share that attains an
objective differs by 0.15 from one to the next (rtx-4090, sharegpt): of four 0.08, so 4 % of a
rate. A rate that is taken from one run alone is one at which that run was lucky."""
CLEAR = 1 / 4
"""The first run decides where it misses less than so much of what may be missed, or more than its
inverse (assumed)."""
PROFILED = (SEED, 1, 1)
"""Seed of the earlier requests that a policy which learns has profiled."""
SATURATED = (256, 512)
"""Warm-up and other requests where all wait: more than may run at once, so that some do to the end
of what counts."""
LOWERED = 10
"""How often a load that other runs do not attain is lowered by the tolerance."""
CONFIRMED = 10
"""Replications of a sweep that confirms a load."""
TOLERANCE = 0.04
"""Relative; of every bandwidth, gather ratio and load that is found."""
AMPLE = 64
"""Times a device's bandwidth that are as good as any."""
LEAST_GATHER = 0.1
"""Gather ratios below are not asked about."""
LONG = 100
"""Times the objective's wait that arrivals last in a run that shows overload by itself
(assumed)."""
ALL_AT_ONCE = Arrivals(process="all_at_once")
_ROUNDING = 1e-9


class Target(NamedTuple):
    """What is to be served, and how much of it how well."""

    model: TransformerSpec
    workload: WorkloadSpec
    slo: Slo | None
    """None: any latency will do."""
    per_s: float
    """Requests a second; without `slo` output tokens a second."""
    cards: int
    weights: str | None = None
    """The one format of the weights that is asked about; None: the model's own, and narrower
    ones."""
    kv: str | None = None
    """Format of the KV; None: the model's own."""
    policy: PolicyOptions = PagedOptions()
    """Lengths are predicted exactly."""
    users: str = ""
    """The law by which users became a rate, in words."""

    @property
    def gathers(self) -> bool:
        """Whether its policy scatters KV, so that reading it slower may be asked about."""
        return isinstance(self.policy, PagedOptions)


class Asked(NamedTuple):
    """One question. `load`: the largest that the device carries; `bandwidth`: the least of the
    device that meets the target, delivered B/s; `gather`: the least ratio that does."""

    what: Literal["load", "bandwidth", "gather"]
    target: Target
    device: Device
    weights: str | None = None
    capacity: int | None = None


def delivered(device: Device) -> float:
    """Bytes a second that reach the engines of a device at best."""
    return device.peak_gbps * 1e9 * closed_form_share(device)


def answer(asked: Asked) -> float | None:
    """The figure that is asked for; None where none meets the target. Raises DescriptionError where
    the model cannot be served on the device at all."""
    target, own = asked.target, delivered(asked.device)
    if asked.what == "load":
        return _load(asked, own)
    if asked.what == "gather":

        def gathers(slower: float) -> bool:
            return slower >= 1 and _meets(asked, own, target.per_s, slower)

        if not gathers(1.0):
            return None
        if gathers(1 / LEAST_GATHER):
            return LEAST_GATHER
        return 1 / largest_rate(lambda x: x * LEAST_GATHER < 1 and gathers(x), 1.0, TOLERANCE)
    if not _meets(asked, AMPLE * own, target.per_s):
        return None
    narrower = largest_rate(lambda x: _meets(asked, own / x, target.per_s), 1.0, TOLERANCE)
    return own / narrower


def _load(asked: Asked, own: float) -> float | None:
    """Requests a second that attain the objective; without one output tokens a second."""
    target = asked.target
    saturated = _served(asked, own, None)[1]
    if target.slo is None:
        return saturated
    try:
        guess = saturated / mean_output(target)
        found = largest_rate(
            lambda rate: _meets(asked, own, rate, most=saturated), guess, TOLERANCE
        )
    except NoRate:
        return None
    near = found < target.per_s <= found * (1 + TOLERANCE)
    if near and _meets(asked, own, target.per_s, most=saturated):
        found = target.per_s
    for _ in range(LOWERED):
        if _attained_again(asked, own, found, target.slo.attainment):
            break
        found /= 1 + TOLERANCE
    return found


def _attained_again(asked: Asked, own: float, per_s: float, attainment: float) -> bool:
    """Whether runs that the bisection has not seen attain the rate as well: it ends where its own
    were lucky."""
    return enough(lambda draw: _served(asked, own, per_s, None, DRAWS + draw)[0], attainment)


def _meets(
    asked: Asked, bandwidth: float, per_s: float, slower: float | None = None,
    most: float | None = None,
) -> bool:  # fmt: skip
    """slower: how much slower scattered KV is read; None: as the card's software reads it. most:
    output tokens a second with all requests there at once, where that is known."""
    target, slo = asked.target, asked.target.slo
    if slo is None:
        return _served(asked, bandwidth, None, slower)[1] >= per_s
    if not enough(lambda draw: _served(asked, bandwidth, per_s, slower, draw)[0], slo.attainment):
        return False
    if (WARMUP + REQUESTS) / per_s >= LONG * slo.ttft * 1e-9:
        return True
    # so few requests at this rate wait too short to show that there are too many
    if most is None:
        most = _served(asked, bandwidth, None, slower)[1]
    return most >= per_s * mean_output(target)


def enough(share: Callable[[int], float], attainment: float) -> bool:
    """Whether so many of the requests of all runs attain the objective. share: of those of a run,
    from 1 to `DRAWS`."""
    spare, missed = 1 - attainment, 0.0
    for draw in range(1, DRAWS + 1):
        missed += 1 - share(draw)
        if draw == 1 and missed < CLEAR * spare:
            return True
        if missed > (DRAWS if draw > 1 else 1 / CLEAR) * spare + _ROUNDING:
            return False
    return True


def _served(
    asked: Asked, bandwidth: float, rate_per_s: float | None, slower: float | None = None,
    draw: int = 1,
) -> tuple[float, float]:  # fmt: skip
    """(share of the requests that attain the objective, output tokens a second) at a rate, or with
    all requests there at once."""
    target, requests = asked.target, _requests(asked.target, rate_per_s, draw)
    policy = target.policy
    if slower is not None:
        policy = policy.model_copy(update={"indirection": slower})
    spec = ServingSpec(
        model=target.model.name, weights=asked.weights or target.weights, kv=target.kv,
        tensor_parallel=target.cards, policy=policy,
    )  # fmt: skip
    device = _with(asked.device, bandwidth, asked.capacity)
    warm = WARMUP if rate_per_s else SATURATED[0]
    learns = issubclass(POLICIES[policy.name], Learns)
    profile = generate(_waiting(target), warm, None, PROFILED) if learns else None
    found = serve(
        device, target.model, spec, requests, seed=1, warmup_requests=warm, profile=profile
    )
    share = 1.0
    if target.slo is not None:
        times = (found.arrival_s, found.first_token_s, found.finish_s)
        attained = target.slo.attained(*times, requests.output_tokens)
        share = float(attained[warm:].mean())
    return share, float(found.metrics["output_tokens_per_s"])


def _requests(target: Target, rate_per_s: float | None, draw: int = 1) -> Requests:
    if rate_per_s is not None:
        return generate(target.workload, WARMUP + REQUESTS, rate_per_s, (SEED, draw))
    return generate(_waiting(target), sum(SATURATED), None, (SEED, draw))


def _waiting(target: Target) -> WorkloadSpec:
    return target.workload.model_copy(update={"arrivals": ALL_AT_ONCE})


def confirmation(
    asked: Asked, device: str, model: str, workload: str, device_set: dict[str, Any],
    rate_per_s: float,
) -> list[Task]:  # fmt: skip
    """Replications of a sweep's point at a rate: other requests, and memory as a sweep has it.
    device, model, workload: as they were named; device_set: overrides by path."""
    target = asked.target
    serving = ServingSpec(
        model=model, weights=target.weights, kv=target.kv, tensor_parallel=target.cards,
        policy=target.policy, memories=InterleavedOptions() if asked.device.memories else None,
    )  # fmt: skip
    experiment = ExperimentSpec(
        device=device, device_set=device_set, model=model, workload=workload,
        serving=serving, slo=target.slo, load=Load(rate_per_s=rate_per_s), requests=REQUESTS,
        warmup_requests=WARMUP, replications=CONFIRMED, seed=SEED + 1,
    )  # fmt: skip
    return [Task(experiment, each, rate_per_s) for each in range(1, CONFIRMED + 1)]


def attained(task: Task) -> float:
    """The share of a replication's requests that attain the objective. Raises DescriptionError."""
    return float(run_task(task)["slo"]["attainment"])


def closed_rate(users: int, think_s: float, slo: Slo, mean_output: float) -> tuple[float, str]:
    """Requests a second of users who each wait for an answer before they send the next request,
    `think_s` after it, and the law in words.

    By Little's law users = rate x (think + answer). An answer takes what the objective allows; on
    a device that attains it at this rate the users of a closed loop get theirs no later, since a
    later one would lower the rate (Denning and Buzen 1978, interactive response time)."""
    answer_s = (slo.ttft + slo.tpot * (mean_output - 1)) * 1e-9
    rate = users / (think_s + answer_s)
    return rate, (
        f"{users:,} users: {users:,} / ({think_s:g} s of thought + {answer_s:.3g} s, the longest"
        f" answer of {mean_output:.0f} tokens that attains) = {rate:.3g} requests/s (Little's law)."
    )


def mean_output(target: Target) -> float:
    """Output tokens of a request. Raises DescriptionError where no rate can be asked for."""
    process = target.workload.arrivals.process
    if process in ("all_at_once", "closed"):
        raise DescriptionError(f"expected arrivals that have a rate; got {process}", "--workload")
    return float(np.mean(_requests(target, None).output_tokens))


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

"""What it takes to serve a load: which device, which bandwidth, capacity, weights, gather cost, how
many replicas.

A load is requests a second, or users: clients of a closed loop, each of whom waits for an answer
and then thinks. How many attain an objective is found by serving them, not from a rate: Little's
law bounds a mean, and an objective is about the slowest.

Every question is answered by serving the workload, by one policy, with memory that delivers one
given bandwidth wherever KV lies: of a described device its peak times the share that is given, or
the closed-form bound of sequential reads times `derate`. So simulated devices are taken at their
best, and what scattered reads may cost is asked for by itself: `gather`, the bandwidth of scattered
KV over that of contiguous KV in decode attention (1 / `indirection` of docs/memory-time.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeVar

from hwmodel.description.description import DescriptionError
from policies.placements.placements import InterleavedOptions
from policies.requests.arrivals import Arrivals
from policies.serving.serving_spec import ServingSpec
from sweeps.analyse.statistics import interval
from sweeps.ask.sizing_runs import (
    DRAWS,
    REQUESTS,
    SEED,
    WARMUP,
    SizingQuestion,
    SizingRun,
    capacity_of,
    delivered,
    requests_of,
    served,
)
from sweeps.plan.bisection import NoRate, least
from sweeps.plan.experiment import ExperimentSpec, OfferedLoad, Task, run_task
from sweeps.plan.saturation import Capacity
from sweeps.run.goodput import largest_rate

CLEAR = 1 / 4
"""The first run decides where it misses less than so much of what may be missed, or more than its
inverse (assumed)."""
LOWERED = 10
"""How often a load that other runs do not attain is lowered by the tolerance, or one that they do
raised."""
KNOWN, MOST_RUNS = 0.02, 16
"""Half of the interval of the share that attains an objective, of so many users; and runs at most
that make it so small (assumed). From one run of 25 users to the next it differs by 0.05."""
CONFIRMED = 10
"""Replications of a sweep that confirms a load."""
TOLERANCE, OF_USERS = 0.04, 0.02
"""Relative; of every bandwidth, gather ratio and rate that is found, and of users: near the
capacity an objective that most attain with some users few attain with 4 % more."""
AMPLE = 64
"""Times a device's bandwidth that are as good as any."""
LEAST_GATHER = 0.1
"""Gather ratios below are not asked about."""
LONG = 100
"""Times the objective's wait that arrivals last in a run that shows overload by itself
(assumed)."""
CARDS = (1, 2, 4, 8)
"""Of a replica, where none are asked for."""
SERVED_TOGETHER = 16
"""Replicas of a fleet whose requests are served, at most (assumed)."""
MOST_REPLICAS = 4 * SERVED_TOGETHER
"""More are not tried."""
_ROUNDING = 1e-9
T = TypeVar("T")


def answer(question: SizingQuestion) -> float | None:
    """The figure that is asked for; None where none meets the target. Raises DescriptionError where
    the model cannot be served on the device at all."""
    target, own = question.target, delivered(question.device)
    if question.what == "load":
        return _load(question, own)
    if question.what == "replicas":
        return _replicas(question, own)
    if question.what == "gather":

        def gathers(slower: float) -> bool:
            return slower >= 1 and _meets(question, own, target.load, slower)

        if not gathers(1.0):
            return None
        if gathers(1 / LEAST_GATHER):
            return LEAST_GATHER
        return 1 / largest_rate(lambda x: x * LEAST_GATHER < 1 and gathers(x), 1.0, TOLERANCE)
    if not _meets(question, AMPLE * own, target.load) and not _meets(question, own, target.load):
        return None
    narrower = largest_rate(lambda x: _meets(question, own / x, target.load), 1.0, TOLERANCE)
    return own / narrower


def answer_where_it_fits(question: SizingQuestion) -> tuple[int, float | None]:
    """(cards of a replica, the largest load that it carries): as many as the target names, or the
    fewest of `CARDS` that hold the model. Raises DescriptionError where none do."""
    return _with_fewest(question, answer)


def cards_of(question: SizingQuestion) -> int:
    """Cards of a replica, likewise. Raises DescriptionError where none hold the model."""
    if question.target.cards is not None:
        return question.target.cards
    return _with_fewest(question, lambda of: capacity_of(of, delivered(of.device)))[0]


def _with_fewest(asked: SizingQuestion, find: Callable[[SizingQuestion], T]) -> tuple[int, T]:
    """(cards, what is found with them)."""
    if asked.target.cards is not None:
        return asked.target.cards, find(asked)
    first: DescriptionError | None = None
    for cards in CARDS:
        try:
            return cards, find(asked._replace(target=asked.target._replace(cards=cards)))
        except DescriptionError as error:
            first = first or error
    assert first is not None
    raise first


def _load(asked: SizingQuestion, own: float) -> float | None:
    """Requests a second, or users, that attain the objective; without one output tokens a
    second."""
    target = asked.target
    most = capacity_of(asked, own)
    if target.slo is None:
        return most.per_s * most.output_tokens
    guess, whole = most.per_s, target.think_s is not None
    if target.think_s is not None:
        answer_s = (
            min(target.slo.ttft, target.slo.tpot) + target.slo.tpot * most.output_tokens
        ) / 1e9
        guess = max(
            most.at_once if target.at_once else most.per_s * (target.think_s + answer_s), 1.0
        )

    @cache
    def meets(load: float) -> bool:
        if target.at_once and load > most.at_once + 1:
            return False
        return load >= whole and _meets(asked, own, load, most=most)

    step = OF_USERS if whole else TOLERANCE

    def even(load: float) -> float:
        return float(math.floor(load)) if whole else load

    try:
        found = even(largest_rate(lambda load: meets(even(load)), guess, step))
    except NoRate:
        return None
    if found < target.load <= found * (1 + step) and meets(target.load):
        found = target.load
    if whole:
        ceiling = most.at_once + 1 if target.at_once else math.inf
        return _users_again(asked, own, found, ceiling)
    for _ in range(LOWERED):
        if _attained_again(asked, own, found, target.slo.attainment):
            break
        found /= 1 + step
    return found if found >= 1e-300 else None


def _users_again(asked: SizingQuestion, own: float, found: float, ceiling: float) -> float | None:
    """The most users that attain the objective in runs that the bisection has not seen, from where
    it ended up or down: its own few were lucky, or were not."""
    slo, step = asked.target.slo, max(math.floor(OF_USERS * found), 1)
    assert slo is not None

    def attains(users: float) -> bool:
        runs = _known(asked, own, users, DRAWS + 1)
        return sum(run.attained for run in runs) / len(runs) >= slo.attainment

    if attains(found):
        for _ in range(LOWERED):
            if found + step > ceiling or not attains(found + step):
                break
            found += step
        return found
    for _ in range(LOWERED):
        found -= step
        if found < 1 or attains(found):
            break
    return found if found >= 1 else None


def _known(asked: SizingQuestion, own: float, users: float, first: int) -> list[SizingRun]:
    """Runs of so many users, from this draw on: until the share that attains the objective is
    known, or `MOST_RUNS`."""
    runs: list[SizingRun] = []
    for draw in range(first, first + MOST_RUNS):
        runs.append(served(asked, own, users, None, draw))
        if len(runs) >= DRAWS:
            share = interval([run.attained for run in runs])
            if share.high - share.low <= 2 * KNOWN:
                break
    return runs


def _replicas(asked: SizingQuestion, own: float) -> float | None:
    """The fewest replicas behind a router that counts requests; None: not so many as are tried.
    Many are not served together: they carry what each does alone."""
    if asked.guess > SERVED_TOGETHER:
        return float(asked.guess)

    def meets(replicas: int) -> bool:
        return _meets(asked, own, asked.target.load, replicas=replicas)

    found = least(meets, 1, MOST_REPLICAS, asked.guess)
    return None if found is None else float(found)


def _attained_again(asked: SizingQuestion, own: float, load: float, attainment: float) -> bool:
    """Whether runs that the bisection has not seen attain the rate as well: it ends where its own
    were lucky."""
    return enough(lambda draw: served(asked, own, load, None, DRAWS + draw).attained, attainment)


def _meets(
    asked: SizingQuestion, bandwidth: float, load: float, slower: float | None = None,
    most: Capacity | None = None, replicas: int = 1,
) -> bool:  # fmt: skip
    """slower: how much slower scattered KV is read; None: as the card's software reads it. most:
    the capacity of a replica, where that is known."""
    target, slo = asked.target, asked.target.slo
    if slo is None:
        mean = target.mean_output
        most = capacity_of(asked, bandwidth, slower, load / replicas / mean)
        return replicas * most.per_s * mean >= load
    runs = partial(served, asked, bandwidth, load, slower, replicas=replicas)
    if not enough(lambda draw: runs(draw=draw).attained, slo.attainment):
        return False
    if (
        target.think_s is not None
        or (WARMUP + REQUESTS) / load * replicas >= LONG * slo.ttft * 1e-9
    ):
        return True
    # so few requests at this rate wait too short to show that there are too many
    if most is None:
        most = capacity_of(asked, bandwidth, slower, load / replicas)
    return replicas * most.per_s >= load


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


def confirmation(
    question: SizingQuestion,
    device: str,
    model: str,
    workload: str,
    device_set: dict[str, Any],
    load: float,
) -> list[Task]:
    """Replications of a sweep's point at a rate, or with so many users: other requests, and memory
    as a sweep has it. device, model, workload: as they were named; device_set: overrides by
    path."""
    target = question.target
    serving = ServingSpec(
        model=model, weights=target.weights, kv=target.kv, tensor_parallel=target.cards or 1,
        policy=target.policy, memories=InterleavedOptions() if question.device.memories else None,
    )  # fmt: skip
    requests, warm = requests_of(target, load, 1, 1)
    rate = load if target.think_s is None else None
    users = (
        None
        if rate
        else Arrivals(process="closed", clients=int(load), think_s=target.think_s or 0.0)
    )
    experiment = ExperimentSpec(
        device=device, device_set=device_set, model=model, workload=workload,
        serving=serving, slo=target.slo, load=OfferedLoad(rate_per_s=rate) if rate else None,
        arrivals=users, requests=len(requests) - warm, warmup_requests=warm,
        replications=CONFIRMED, seed=SEED + 1,
    )  # fmt: skip
    return [Task(experiment, each, rate) for each in range(1, CONFIRMED + 1)]


def attained(task: Task) -> float:
    """The share of a replication's requests that attain the objective. Raises DescriptionError."""
    return float(run_task(task)["slo"]["attainment"])


def with_users(question: tuple[SizingQuestion, float]) -> list[SizingRun]:
    """Of a question and users: what becomes of so many, on requests that no search has seen.
    Raises DescriptionError."""
    asked, users = question
    return _known(asked, delivered(asked.device), users, DRAWS + 1 + MOST_RUNS)

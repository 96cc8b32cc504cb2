"""How many replicas serve a load within an objective: with prefill and decode apart, or together.

Every question is a sweep's point (`sweeps.plan.experiment`), over the same requests. Apart, each
pool's least number is found by bisection beside a pool that is ample. A pair that meets the load
has no less of either, so the first that does, by their sum, has the fewest: if a replica more never
serves less (assumed; the noise of runs aside). Together, each step has one of `CHUNKS` at most, of
prompts and of tokens that are decoded; the best of these counts. Apart, steps are the engine's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from policies.requests.slo import Slo
from sweeps.ask.sizing import DRAWS, REQUESTS, SEED, WARMUP, attained, enough
from sweeps.plan import bisection
from sweeps.plan.experiment import ExperimentSpec, OfferedLoad, Task

MOST = 64
"""Replicas of a pool, or in all: more are not tried, and so many are ample."""
CHUNKS = (512, 2048, 8192)
"""Tokens a step of replicas that do both (assumed): small ones delay the tokens of others least."""
ANSWERS = 3
"""Longest answers within the objective that arrivals last, after a warm-up of one (assumed)."""


class PoolQuestion(NamedTuple):
    """A load and who may serve it. `described`: device, model, workload and what sets them, as an
    experiment has them; `serving`: what all replicas have."""

    described: dict[str, Any]
    serving: dict[str, Any]
    slo: Slo
    per_s: float
    """Requests a second."""
    mean_output: float
    """Tokens of an answer."""
    link: str
    cards: int
    """Of a replica."""


class Both(NamedTuple):
    """Replicas that do both, and the tokens of a step."""

    replicas: int
    chunk: int


class SidesApart(NamedTuple):
    """Replicas that prefill, and that decode."""

    prefill: int
    decode: int


class ReplicaCount(NamedTuple):
    """The least number of one kind of replica; `chunk`: of those that do both."""

    question: PoolQuestion
    of: str
    chunk: int = 0


def tasks(question: PoolQuestion, replicas: Both | SidesApart) -> list[Task]:
    """The runs that decide whether these replicas meet the load."""
    answer_s = (question.slo.ttft + question.slo.tpot * (question.mean_output - 1)) * 1e-9
    warm = max(WARMUP, math.ceil(question.per_s * answer_s))
    serving: dict[str, Any] = {
        "model": question.described["model"],
        "tensor_parallel": question.cards,
    }
    serving |= question.serving
    if isinstance(replicas, Both):
        serving["cluster"] = {"cards": replicas.replicas, "placement": "least_requests"}
        serving["engine"] = {"name": "v1", "max_num_batched_tokens": replicas.chunk}
    else:
        pools = {"prefill": {"replicas": replicas.prefill}, "decode": {"replicas": replicas.decode}}
        serving["pools"] = {**pools, "link": question.link}
    experiment = ExperimentSpec.model_validate({
        **question.described, "serving": serving, "slo": question.slo, "seed": SEED,
        "load": OfferedLoad(rate_per_s=question.per_s), "warmup_requests": warm,
        "requests": max(REQUESTS, ANSWERS * warm),
    })  # fmt: skip
    return [Task(experiment, draw, question.per_s) for draw in range(1, DRAWS + 1)]


def share(question: PoolQuestion, replicas: Both | SidesApart) -> float:
    """Of the requests of all runs that attain the objective. Raises DescriptionError."""
    return sum(map(attained, tasks(question, replicas))) / DRAWS


def meets(question: PoolQuestion, replicas: Both | SidesApart) -> bool:
    """Whether these replicas meet the load. Raises DescriptionError."""
    runs = tasks(question, replicas)
    return enough(lambda draw: attained(runs[draw - 1]), question.slo.attainment)


def least(count: ReplicaCount) -> int | None:
    """The least number; None where `MOST` do not meet the load. Raises DescriptionError."""
    question, of, chunk = count
    kinds: dict[str, Callable[[int], Both | SidesApart]] = {
        "both": lambda n: Both(n, chunk),
        "prefill": lambda n: SidesApart(n, MOST), "decode": lambda n: SidesApart(MOST, n),
    }  # fmt: skip
    return bisection.least(lambda n: meets(question, kinds[of](n)), 1, MOST, 1)


def fewest(question: PoolQuestion, prefill: int, decode: int) -> SidesApart | None:
    """The pair of the least sum that meets the load, of so many at least; None where there is none
    of `MOST` in all. Raises DescriptionError."""
    for total in range(prefill + decode, MOST + 1):
        for x in range(prefill, total - decode + 1):
            if meets(question, SidesApart(x, total - x)):
                return SidesApart(x, total - x)
    return None

"""How often the interval of a short run holds the capacity of long ones.

    python -m tests.answers.coverage                      # 390 runs, some CPU minutes
    python -m tests.answers.coverage --runs 40 --seed 2

The capacity of a pair is the mean of `REFERENCES` runs of `LONG` requests, which no short run
shares a draw with.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from sweeps.plan.experiment import ExperimentSpec, Task, capacity_of

PAIRS = [
    ("h100-sxm", "llama-3.1-8b", "sharegpt"),
    ("rtx-4090", "llama-3.1-8b", "alpaca"),
    ("l4", "llama-3.2-3b", "azure-conv"),
    ("mlu370-x4", "llama-3.1-8b", "alpaca"),
    ("a100-80gb", "llama-3.1-8b", "sharegpt"),
]
RUNS, SEED, LEAST, MOST = 390, 1, 50, 800
LONG, REFERENCES, APART = 4_000, 4, 100_000
"""Requests of a run that counts as long; how many of them; their first replication."""


class Covered(NamedTuple):
    """Of a pair: its capacity, and of its short runs how many there are, how many have an interval
    that holds it, how many are refused, and by how much of the capacity the worst misses it."""

    pair: tuple[str, str, str]
    per_s: float
    runs: int
    held: int
    refused: int
    missed: float


def point(pair: tuple[str, str, str], requests: int, **more: Any) -> ExperimentSpec:
    """Of which the capacity is asked."""
    device, model, workload = pair
    serving = {"model": model, "policy": {"name": "paged"}, "memory": {"efficiency": 0.8}}
    serving |= more.pop("serving", {})
    return ExperimentSpec.model_validate({
        "device": device, "model": model, "workload": workload, "serving": serving,
        "load": {"relative": 1.0}, "requests": requests, **more,
    })  # fmt: skip


def covered(runs: int = RUNS, seed: int = SEED) -> Iterator[Covered]:
    """So many short runs, shared among the pairs; each has requests of its own, and of `LEAST` to
    `MOST` of them."""
    rng = np.random.default_rng(seed)
    for at, pair in enumerate(PAIRS):
        long = [
            capacity_of(Task(point(pair, LONG), -(APART + k), None)).per_s
            for k in range(REFERENCES)
        ]
        per_s, misses, refused = float(np.mean(long)), [], 0
        for _ in range(len(range(at, runs, len(PAIRS)))):
            count = round(float(np.exp(rng.uniform(np.log(LEAST), np.log(MOST)))))
            task = Task(point(pair, count), -int(rng.integers(1, APART)), None)
            try:
                short = capacity_of(task)
            except DescriptionError:
                refused += 1
                continue
            misses.append(abs(short.per_s - per_s) - short.half * short.per_s)
        held = sum(miss <= 0 for miss in misses)
        worst = max([0.0, *misses]) / per_s
        yield Covered(pair, per_s, len(misses), held, refused, worst)


def main() -> None:
    """Print how many hold it, by pair."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    every = list(covered(given.runs, given.seed))
    for each in every:
        print(
            f"{' '.join(each.pair):36} {each.per_s:8.3f}/s  {each.held} of {each.runs} held,"
            f" {each.refused} refused, worst missed by {each.missed:.2%}"
        )
    print(f"{sum(each.held for each in every)} of {sum(each.runs for each in every)} held")


if __name__ == "__main__":
    main()

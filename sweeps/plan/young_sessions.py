"""Are sessions of clients that all begin together in equilibrium when a run begins to count?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sweeps.plan.experiment import ExperimentSpec, workload_of

GENERATIONS = 3
"""Of sessions, until their turns are as old as they stay: geometric numbers of turns forget where
they began by exp(-1) in each."""


def young_sessions(experiments: Iterable[Any]) -> str | None:
    """What to say where fewer requests warm up than that takes, of the worst; None otherwise."""
    worst, told = 0.0, None
    for each in experiments:
        if not isinstance(each, ExperimentSpec):
            continue
        workload = workload_of(each)
        law, clients = workload.lengths.sessions, workload.arrivals.clients
        if law is None or clients is None:
            continue
        wanted = GENERATIONS * clients * law.mean_turns
        if wanted - each.warmup_requests > worst:
            worst = wanted - each.warmup_requests
            told = (
                f"sessions begin together: contexts are still young after {each.warmup_requests:,}"
                f" requests of {clients} clients with {law.mean_turns:g} turns;"
                f" --set warmup_requests={wanted:.0f}"
            )
    return told

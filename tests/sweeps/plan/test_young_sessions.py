"""Is a run of sessions told that it begins to count too soon?"""

from __future__ import annotations

import pytest

from sweeps.plan.sweep import load_sweep
from sweeps.plan.young_sessions import young_sessions
from tests.sweeps.made import RESULTS


@pytest.mark.parametrize(
    "name",
    [
        "sessions",
        str(RESULTS / "motion.yaml"),
        "offload",
        *(str(RESULTS / f"{each}.yaml") for each in ("pauses", "radix", "restore", "hcache")),
        str(RESULTS / "pools-map.yaml"),
    ],
)
def test_shipped_sweeps_of_sessions_warm_up_long_enough(name: str) -> None:
    assert young_sessions(point.experiment for point in load_sweep(name).points) is None


def test_too_few_requests_are_told_with_how_many_would_do() -> None:
    points = load_sweep("sessions", ["warmup_requests=500", "axes.workload=[agents]"]).points
    told = young_sessions(point.experiment for point in points)
    assert told is not None and "after 500 requests of 64 clients with 20 turns" in told
    assert told.endswith("--set warmup_requests=3840")


@pytest.mark.parametrize("name", ["quickstart", "fleet", "kv-extent"])
def test_nothing_is_said_without_clients_that_have_sessions(name: str) -> None:
    assert young_sessions(point.experiment for point in load_sweep(name).points) is None

"""Do 95 % intervals of three replications hold the truth as often as they say?

Many seeds of a small sweep are run. The truth is the mean of all. Where replications are
independent, the means of seeds vary as far as their replications say: the ratio of the two
variances is an F.
"""

from __future__ import annotations

import numpy as np
import pytest

from policies.requests.requests import FloatArray
from sweeps.analyse.figures import THROUGHPUT
from sweeps.analyse.statistics import interval
from sweeps.plan.experiment import Task, run_task
from sweeps.plan.sweep import load_sweep
from sweeps.run.capacity import Capacities, calibrate, wanted

SEEDS, REPLICATIONS = 60, 3
SMALL = (
    "policy=[static, paged, odma]", "requests=150", "warmup_requests=50", "workload=sharegpt",
    "workload_set={limits: {max_prompt_tokens: 1000, max_output_tokens: 400}}",
    "serving.predictor={kind: lognormal, sigma: 0.4}", f"replications={REPLICATIONS}",
)  # fmt: skip
RATIOS = (("paged", "odma"), ("paged", "static"), ("odma", "static"))


def logs(*sets: str) -> dict[str, FloatArray]:
    """ln of output tokens/s by policy, float64 (seeds, replications)."""
    found: dict[str, list[float]] = {}
    for seed in range(1, SEEDS + 1):
        sweep = load_sweep("smoke", [*SMALL, f"seed={seed}", *sets])
        known = Capacities(dict(calibrate(wanted(sweep), {}, 1)))
        for point in sweep.points:
            for r in range(1, REPLICATIONS + 1):
                rate = known.rate_per_s(sweep, point, r)
                metrics = run_task(Task(point.experiment, r, rate))
                name = point.overrides["serving.policy"]
                found.setdefault(name, []).append(metrics[THROUGHPUT])
    return {name: np.log(each).reshape(SEEDS, -1) for name, each in found.items()}


def coverage(values: FloatArray) -> float:
    """How many seeds' intervals hold the mean of all."""
    found = [interval(each) for each in values.tolist()]
    return float(np.mean([each.low <= values.mean() <= each.high for each in found]))


def between(values: FloatArray) -> tuple[float, float]:
    """(F of the seeds' means over their replications, its p value)."""
    from scipy.stats import f

    ratio = REPLICATIONS * values.mean(axis=1).var(ddof=1) / values.var(axis=1, ddof=1).mean()
    return float(ratio), float(f.sf(ratio, SEEDS - 1, SEEDS * (REPLICATIONS - 1)))


def quantities(*sets: str) -> dict[str, FloatArray]:
    """Each policy's rate and each ratio of two, in logarithms."""
    rates = logs(*sets)
    return rates | {f"{a} over {b}": rates[a] - rates[b] for a, b in RATIOS}


def covered(found: dict[str, FloatArray]) -> float:
    """The mean coverage. Each is one of 60 seeds: known to 0.028 (binomial); they are related."""
    return float(np.mean([coverage(values) for values in found.values()]))


@pytest.mark.long
@pytest.mark.parametrize(
    ("load", "calibration"), [(0.9, "replication"), (1.5, "replication"), (0.9, "shared")]
)
def test_intervals_hold_the_truth_as_often_as_they_say(load: float, calibration: str) -> None:
    """0.939, 0.953 and 0.936 were measured, and 0.942 of the last with seeds 61 to 120."""
    found = quantities(f"load.relative={load}", f"calibration={calibration}")
    assert 0.92 <= covered(found) <= 0.98
    for name, values in found.items():
        assert between(values)[1] > 0.01, name

"""What an objective asks of the points of a sweep, and what to say where they lack it."""

from __future__ import annotations

from collections.abc import Sequence

from sweeps.analyse.objective import Need
from sweeps.plan.experiment import Described, ExperimentSpec, device_of, workload_of

_SLO = "{ttft: 2s, tpot: 100ms}"


def lacking(name: str, needs: Sequence[Need], experiment: Described) -> str | None:
    """What a point lacks of what an objective needs, and what to write; None where it has all."""
    if not isinstance(experiment, ExperimentSpec):
        return f"{name} is measured where requests are served (measure: serving)"
    load = experiment.load
    searched = load is not None and load.goodput is not None
    for need in needs:
        if need == "goodput" and not searched:
            return f"{name} needs a load that is searched: load: {{goodput: {_SLO}}}"
        if need == "slo" and searched:
            return f"{name}: load.goodput gives each point the same; take objective: goodput"
        if need == "slo" and experiment.slo is None:
            return f"{name} needs slo: {_SLO}"
        if need == "energy" and device_of(experiment).described is None:
            return f"{name} needs a simulated memory; that of {experiment.device} is given"
        if need == "price" and device_of(experiment).price_usd is None:
            return (
                f"{name} needs the price of {experiment.device}: device_set: {{price: {{card:"
                " 15000, gb: 25}}, in dollars, and price_gb of each further memory"
            )
        if need == "draw" and device_of(experiment).draw_watts is None:
            return (
                f"{name} needs what {experiment.device} draws: device_set: {{draw: {{card: 500,"
                " gbps: 0.04}}, in watts, and draw_gbps of each further memory"
            )
        if need == "area" and device_of(experiment).area_mm2 is None:
            return (
                f"{name} needs the area of {experiment.device}: device_set: {{area: {{card: 600,"
                " channel: 2}}, in mm2, and area_channel of each further memory"
            )
        if need == "below capacity" and (why := _above(experiment)):
            return (
                f"{name} grows with the run where the load is above capacity ({why}): expected"
                " latency_at, such as 0.8, or a smaller load"
            )
    return None


def _above(experiment: ExperimentSpec) -> str | None:
    """Why the load is known to be above capacity, and no latency measured below it."""
    if experiment.latency_at is not None:
        return None
    if workload_of(experiment).arrivals.process == "all_at_once":
        return "arrivals: all_at_once"
    load = experiment.load
    if load is not None and load.relative is not None and load.relative >= 1:
        return f"load.relative: {load.relative:g}"
    return None

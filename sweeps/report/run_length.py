"""Whether a run was long enough for the rates and goodputs it states."""

from __future__ import annotations

import math
from typing import Any

from sweeps.analyse.figures import CAPACITY_RATE, GOODPUT
from sweeps.analyse.table import Table
from sweeps.analyse.variants import CASE, overrides, with_role

ENOUGH = 7
"""Requests of a run, warm-up and all, for each that runs at once: by Little's law how many times as
long the run is as a request stays (assumed). In `tests/sweeps/yaml/run-length.yaml`, beside 3,000
requests, rates are 15 to 22 % low at 3, 4 to 9 % at 6 to 7 without a warm-up; where half of them
are the warm-up, 29 % low to 28 % high at 4 to 5, 13 % low to 4 % high at 7, within 8 % from
11 on."""
OFF = 0.29, 0.28
"""How far below and above those of 3,000 requests the rates of shorter runs were at most, there."""
MEASURED = 3
"""Requests for each that runs at once, below which no rates were held against long runs."""
CLOSE = 0.01
"""A search ends so close to what it seeks."""


def too_short(table: Table) -> list[str]:
    """That points ran for few requests beside their batch, where rates are told: one sentence."""
    if table.compared_by is None or not table.objective.is_rate:
        return []
    rows = [row for group in table.groups for row in group.rows]
    runs = [(requests, batch) for row in rows if (requests := _requests(table, row.overrides))
            and (batch := row.mean("batch"))]  # fmt: skip
    short = [(requests, batch) for requests, batch in runs if requests < ENOUGH * batch]
    if not short:
        return []
    least = min(requests / batch for requests, batch in short)
    wanted = requests_for(max(batch for _, batch in short))
    below, above = OFF
    further = ", and these may be further off" if least < MEASURED else ""
    return [
        f"{len(short)} of {len(rows)} points ran {least:.1f} or more requests for each that runs at"
        f" once, and {ENOUGH} are the fewest that do: rates of so short runs were {below:.0%} below"
        f" to {above:.0%} above those of long ones{further}, whatever their intervals over"
        f" replications; the shortest run that counts: --set requests={wanted}"
    ]


def will_be_short(lengths: list[tuple[int, float]]) -> str | None:
    """Before a run, of points that were tried, (requests, requests at once): that it is too short
    for its rates to count, in a sentence."""
    short = [batch for requests, batch in lengths if requests < ENOUGH * batch]
    if not short:
        return None
    return (
        f"too short for its rates to count: {max(short):.0f} requests run at once, and {ENOUGH} for"
        f" each are the fewest that do: --set requests={requests_for(max(short))}"
    )


def requests_for(batch: float) -> int:
    """The fewest requests of a run that count, where so many run at once."""
    return math.ceil(ENOUGH * batch / 100) * 100


def at_capacity(table: Table) -> list[str]:
    """That goodputs are capacities, in a sentence: a run is too short, or an objective too loose,
    for a load below it to miss."""
    rows = [row for group in table.groups for row in group.rows]
    pairs = [(row.mean(GOODPUT), row.mean(CAPACITY_RATE)) for row in rows]
    searched = [(found, most) for found, most in pairs if found is not None and most is not None]
    full = [found for found, most in searched if found >= (1 - CLOSE) * most]
    if not full:
        return []
    return [
        f"{len(full)} of {len(searched)} points attain the objective up to their capacity, which is"
        " the goodput that they have here; a longer run may attain it at a smaller load alone:"
        " --set requests=NUMBER"
    ]


def _requests(table: Table, own: dict[str, Any]) -> int | None:
    """Of a replication, with its warm-up; None where they are not counted."""
    case = with_role(table.config, "case").get(own.get(CASE, ""), {})
    told = {**table.config["base"], **overrides(case), **own}
    requests, before = told.get("requests"), told.get("warmup_requests") or 0
    return requests + before if isinstance(requests, int) and isinstance(before, int) else None

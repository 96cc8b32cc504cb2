"""The rule of the best: who leads a group by its objective, by how much and why, or how little.

The leader wins where it is significantly ahead of each other one, so that the error is at most that
of the least sure of these tests; over several groups it is Holm's. The others tie with it. A bound
on how much these differ holds for all of them together (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from hwmodel.measure.student import LEVEL, t_quantile
from sweeps.analyse.facts import Pair, Verdict
from sweeps.analyse.figures import KV_RATE, KV_SHARE
from sweeps.analyse.gap import advantage, binds, gap
from sweeps.analyse.objective import KV_READ
from sweeps.analyse.statistics import (
    Interval,
    family_signs,
    farthest,
    grown,
    holm,
    p_value,
    significant,
    widened,
)
from sweeps.analyse.table import Group, Row

MOST = 200
"""No more replications than this are sought."""
NEGLIGIBLE = 0.01
"""A difference of at most this is none, significant or not (assumed)."""
WIDE = 0.05
"""A bound up to this answers; beyond it more replications are asked for (assumed)."""


def judge_all(groups: Sequence[Group]) -> list[Verdict]:
    """The verdicts on groups that are told together: one family of comparisons."""
    groups = [_by_what_there_is(group) for group in groups]
    ranked = [_ranked(group) for group in groups]
    leads = [
        {row.name: advantage(rows[0], row, group.objective) for row in rows[1:]}
        for group, rows in zip(groups, ranked, strict=True)
    ]
    tested = [i for i, each in enumerate(leads) if each]
    adjusted = holm([max(map(p_value, leads[i].values())) for i in tested])
    p_of = dict(zip(tested, adjusted, strict=True))
    sure = {i for i, p in p_of.items() if significant(p)}
    # what Holm does not reject is not rejected by Bonferroni either, which single gaps then have
    factors = [1 if i in sure else len(tested) for i in range(len(groups))]
    return [
        replace(_verdict(*each), family=max(len(tested), 1), p=p_of.get(i, 1.0))
        for i, each in enumerate(zip(groups, ranked, leads, factors, strict=True))
    ]


def pairs_of(group: Group) -> list[Pair]:
    """Every pair of competitors, the better one first, as one family."""
    group = _by_what_there_is(group)
    leads = {
        (better.name, worse.name): advantage(better, worse, group.objective)
        for better, worse in combinations(_ranked(group), 2)
    }
    signs = family_signs(leads)
    return [Pair(*names, lead, signs[names]) for names, lead in leads.items()]


def _by_what_there_is(group: Group) -> Group:
    """Where nothing is served, by the KV read of one batch."""
    rows = group.main()
    if any(row.values(group.objective.metric) for row in rows):
        return group
    read = any(row.values(KV_RATE) for row in rows) and group.objective.is_rate
    return replace(group, objective=KV_READ) if read else group


def _ranked(group: Group) -> list[Row]:
    """The competitors that have the objective, the best mean first."""
    metric, sign = group.objective.metric, 1 if group.objective.less else -1
    rows = [row for row in group.main() if row.values(metric)]
    return sorted(rows, key=lambda row: sign * (row.mean(metric) or 0.0))


def _verdict(
    group: Group, rows: list[Row], leads: Mapping[str, Interval], factor: int
) -> Verdict:  # fmt: skip
    """factor: of the p values, for the groups beside this one."""
    main, objective = group.main(), group.objective
    missing = [row.name for row in main if row not in rows]
    if not leads:
        if not rows:
            return Verdict(group.title, "alone", objective=objective, missing=missing)
        rate = rows[0].mean(objective.metric) or 0.0
        return Verdict(group.title, "alone", rows[0].name, rate, [], objective, missing=missing)
    best, *others = rows
    ahead = {name for name, lead in leads.items() if _is_ahead(lead, factor)}
    ties = [row for row in main if row in rows and row.name not in ahead]
    apart = [advantage(ties[0], row, objective) for row in ties[1:]]
    within = max((grown(farthest(widened(each, len(apart)))) for each in apart), default=0.0)
    reads, limits = objective.metric == KV_RATE, best.limits()
    return Verdict(
        group.title,
        "won" if not apart else "close" if within <= WIDE else "undecided",
        best.name,
        best.mean(objective.metric) or 0.0,
        sorted((gap(group, best, row) for row in others), key=lambda item: item.total.mean),
        objective,
        [row.name for row in ties],
        within,
        missing,
        bound=reads or not limits or binds(best),
        kv_share=best.mean(KV_SHARE) if reads else None,
        limits=limits,
        needed=_most([needed(each, len(apart)) for each in apart]),
    )


def _is_ahead(lead: Interval, factor: int) -> bool:
    sure = lead.mean > 0 and significant(factor * p_value(lead))
    return sure and grown(lead.high) > NEGLIGIBLE


def _most(counts: list[int | None]) -> int | None:
    """The largest, None where one is not known."""
    known = [count for count in counts if count is not None]
    return max(known) if known and len(known) == len(counts) else None


def needed(interval: Interval, tests: int = 1) -> int | None:
    """Replications that would make a log ratio significant, or bound it by `WIDE`, if its mean and
    deviation held; None where nothing is known, or more than `MOST` are needed."""
    if interval.count < 2 or not math.isfinite(interval.half):
        return None
    if not interval.half:
        return interval.count
    deviation = interval.half * math.sqrt(interval.count) / t_quantile(interval.count - 1)
    level, mean, most = 1 - (1 - LEVEL) / max(tests, 1), abs(interval.mean), math.log1p(WIDE)
    for count in range(interval.count + 1, MOST + 1):
        half = t_quantile(count - 1, level) * deviation / math.sqrt(count)
        if half < mean or mean + half <= most:
            return count
    return None

"""What `bankwise size --pools` shows: the fewest replicas, apart and together."""

from __future__ import annotations

from typing import Any

from sweeps.ask.pool_sizing import MOST, SidesApart
from sweeps.ask.sized import PoolSized
from sweeps.sections.section import Grid, Say, Section


def pool_record(found: PoolSized) -> dict[str, Any]:
    """In JSON's types."""
    rows = zip(found.rows.items(), found.shares, strict=True)
    return {
        "device": found.asked.described["device"], "per_s": found.asked.per_s,
        "link": found.asked.link, "slo": found.asked.slo.model_dump(),
        "least_beside_ample": dict(zip(("prefill", "decode"), found.least, strict=True)),
        "found": {name: {**each._asdict(), "attained": share} for (name, each), share in rows},
    }  # fmt: skip


def pool_sheet(found: PoolSized) -> Section:
    """A table and what it says."""
    rows = []
    for (name, each), share in zip(found.rows.items(), found.shares, strict=True):
        apart = isinstance(each, SidesApart)
        many = each.prefill + each.decode if isinstance(each, SidesApart) else each.replicas
        what = f"{each[0]} prefill, {each[1]} decode" if apart else f"chunks of {each[1]:,}"
        rows.append([name, what, str(many), str(many * found.asked.cards), f"{share:.0%}"])
    columns = ["", "replicas", "in all", "cards", "attain it"]
    title = f"Prefill and decode apart on {found.asked.described['device']}"
    return Section(title, [
        Say(found.wanted, "question"), Grid("", columns, rows),
        Say(_verdict(found), "verdict"),
    ])  # fmt: skip


def _verdict(found: PoolSized) -> str:
    """Who needs fewer."""
    apart, both = found.apart, found.both
    if apart is None and both is None:
        return f"Neither meets it with {MOST} replicas."
    if apart is None or both is None:
        return (
            f"Only {'together' if apart is None else 'apart'} meets it, of {MOST} replicas at most."
        )
    many = apart.prefill + apart.decode
    if many == both.replicas:
        return f"Both need {many} replicas."
    fewer = "Apart" if many < both.replicas else "Together"
    return f"{fewer} needs fewer: {many} apart, {both.replicas} together."

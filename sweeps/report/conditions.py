"""What every lead ends with: under which conditions a run was made."""

from __future__ import annotations

from typing import Any

from hwmodel.specs.accelerator import Paging
from sweeps.analyse.label import label
from sweeps.analyse.table import Table
from sweeps.analyse.variants import overrides, with_role
from sweeps.sections.formats import (
    counted,
    listed,
)  # fmt: skip

PAGED = "paged"


def conditions(table: Table) -> str:
    """What was run: model, requests, load, room, cuts, replications, as far as all of the run has
    them."""
    base, cases = table.config["base"], with_role(table.config, "case").values()
    paths = [*table.config["axes"], *(path for case in cases for path in overrides(case))]
    fixed = {k: v for k, v in base.items() if v and k not in {p.split(".")[0] for p in paths}}
    parts = [label(fixed[key]) for key in ("device", "model", "workload") if key in fixed]
    parts += _load(fixed.get("load") or fixed.get("arrivals"))
    parts += _serving(base.get("serving") or {}, paths)
    parts += _blocks(table.config, paths)
    if slo := fixed.get("slo"):
        parts.append(
            f"SLO {listed(f'{key.upper()} {value}' for key, value in slo.items() if value)}"
        )
    if "requests" in fixed:
        parts.append(f"{fixed['requests']:,} requests")
    if table.config.get("objective"):
        parts.append(f"objective {table.objective.noun}")
    counts = [len(row.replications) for group in table.groups for row in group.rows]
    parts.append(counted(max(counts, default=0), "replication"))
    return f"Conditions: {', '.join(parts)}."


def _load(load: Any) -> list[str]:
    match load:
        case {"rate_per_s": float() | int() as rate}:
            return [f"{rate:g} requests/s"]
        case {"relative": float() | int() as times}:
            return [f"load {times:g} times the {load.get('of') or 'best'} capacity"]
        case {"goodput": {"ttft": ttft, "tpot": tpot}}:
            return [f"the largest load with TTFT {ttft} and TPOT {tpot}"]
        case {"process": "all_at_once"}:
            return ["all requests there from the start"]
        case {"process": "closed", "clients": clients}:
            return [f"{clients} clients"]
    return []


def _serving(serving: Any, paths: list[str]) -> list[str]:
    """Settings on which gaps between policies hang most, where the sweep gives them and varies
    none: room for KV, the longest answer, and the cap on requests that run."""
    said = {
        "kv_tokens": "KV of {:,} tokens", "engine.max_tokens": "answers of at most {:,} tokens",
        "engine.max_num_seqs": "at most {:,} requests at once",
    }  # fmt: skip
    found = []
    for path, text in said.items():
        value = serving
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        whole = f"serving.{path}"
        varied = any(whole == each or whole.startswith(f"{each}.") for each in paths)
        if isinstance(value, int) and not varied:
            found.append(text.format(value))
    return found


def _blocks(config: dict[str, Any], paths: list[str]) -> list[str]:
    """Of how many tokens blocks of `paged` are, on which its gap to contiguous runs hangs; nothing
    where a run varies that."""
    of_cases = paths[len(config["axes"]) :]
    varied = any(path.endswith((".paging.block", ".policy.block")) for path in paths)
    if varied or "serving.policy" in of_cases:
        return []
    one = (config["base"].get("serving") or {}).get("policy")
    found = config["axes"].get("serving.policy") or [one]
    policies = [each if isinstance(each, dict) else {"name": each} for each in found]
    devices = ((config.get("resolved") or {}).get("devices") or {}).values()
    cards = [(each.get("accelerator") or {}).get("paging") or {} for each in devices]
    blocks = set()
    for each in policies:
        if each.get("name") == PAGED:
            given = each.get("block")
            blocks |= {given} if given else {card.get("block", Paging().block) for card in cards}
    return [f"blocks of {listed(map(str, sorted(blocks)))} tokens"] if blocks else []

"""What stands at the foot of a report: what its intervals and the words of its tables mean, each
where it is shown."""

from __future__ import annotations

from collections.abc import Iterator

from hwmodel.measure.student import LEVEL
from sweeps.analyse.figures import ENERGY_CONFIDENCE, ENOUGH
from sweeps.analyse.rows import at
from sweeps.analyse.table import Table
from sweeps.sections.section import Block, Grid, Say, Section

_INTERVAL = " to "
_GAP = " % ("
_FEW = "no interval"
_GROWS = "grows"
_JOULES = "mJ/token", "tokens/J"


def footnotes(table: Table, blocks: list[Block]) -> str:
    """One paragraph on what these blocks show."""
    shown = "\n".join(_texts(blocks))
    told = [_intervals(table, shown)] if _INTERVAL in shown or "±" in shown else []
    if _FEW in shown:
        told.append(_few(table))
    if _GROWS in shown:
        told.append("`grows`: more arrives than is served, so it is the longer the longer the run.")
    if len(table.groups) > 1 and table.config.get("rule", "best") == "best":
        many = len(table.groups)
        told.append(f"Winners are corrected for the number of groups, {many} (Holm's correction).")
    if any(each in shown for each in _JOULES):
        told += _energy(table)
    return " ".join([*told, *_too_wide(table), *_without_use(table)])


def _too_wide(table: Table) -> Iterator[str]:
    """How far off the rates of a memory may be whose probes ended before they were narrow."""
    found: dict[str, float] = {}
    whole = 0.0
    for raw in (raw for group in table.groups for row in group.rows for raw in row.raw.values()):
        memory = at(raw, "memory")
        for one in (memory, *(at(memory, "memories") or {}).values()):
            for phase, each in (at(one, "phases") or {}).items():
                if at(each, "too_wide") and each["efficiency"] and each["ci95"]:
                    found[phase] = max(found.get(phase, 0.0), each["ci95"] / each["efficiency"])
                    whole = max(whole, memory.get("throughput_ci95") or 0.0)
    if found:
        rates = ", ".join(f"{phase} ±{100 * half:.2g} %" for phase, half in found.items())
        yield (
            "Some probes ended, as their run or `max_probes` did, before they knew the memory's"
            f" rate as closely as they should: {rates} at most. That leaves a throughput uncertain"
            f" by {100 * whole:.2g} % at most (`sampling ±`)."
        )


def _without_use(table: Table) -> Iterator[str]:
    """What is described and has nothing to do, by who competes; it changes no figure."""
    found: dict[str, list[str]] = {}
    for row in (row for group in table.groups for row in group.rows):
        for why in (each for raw in row.raw.values() for each in raw.get("without_use", ())):
            names = found.setdefault(why, [])
            names += [row.name] * (row.name not in names)
    for why, names in found.items():
        yield f"Without use for {', '.join(names)}: {why}."


def _texts(blocks: list[Block]) -> list[str]:
    every = list(Section("", blocks).walk())
    texts = [say.text for say in every if isinstance(say, Say)]
    for grid in (each for each in every if isinstance(each, Grid)):
        texts += [*grid.columns, *(cell for row in grid.rows for cell in row)]
    return texts


def _intervals(table: Table, shown: str) -> str:
    counts = sorted({len(row.replications) for group in table.groups for row in group.rows})
    many = " to ".join(str(count) for count in dict.fromkeys([*counts[:1], *counts[-1:]]))
    gaps = "; gaps from logarithms of paired ratios" if _GAP in shown else ""
    return (
        f"± and (a to b): {100 * LEVEL:.0f} % intervals, n = {many or 0} replications"
        f" (Student's t{gaps})."
    )


def _few(table: Table) -> str:
    """Why some intervals are not written, and what gives them."""
    setting = "finale.replications" if "trials" in table.config else "replications"
    return f"`no interval`: it would reach below zero; --set {setting}={ENOUGH} for one."


def _energy(table: Table) -> list[str]:
    """How sure the energies are: as the least sure constant in any of them."""
    found = {
        metrics[ENERGY_CONFIDENCE]
        for group in table.groups
        for row in group.rows
        for metrics in row.replications.values()
        if metrics.get(ENERGY_CONFIDENCE)
    }
    return (
        [
            f"DRAM energy has confidence {max(found)}: that of the least sure constant in it (A two"
            " open sources, B one, C derived, D assumed); in tokens/J each constant may be off by a"
            " factor of 1.1 (A), 1.25 (B), 1.5 (C) or 2 (D), assumed; a board is taken at its power"
            " limit."
        ]
        if found
        else []
    )

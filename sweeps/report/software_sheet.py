"""What of the difference between the devices of a run is software, as a sentence and a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sweeps.analyse.table import Table
from sweeps.plan.software import BATCH, OUTPUT, PROMPT
from sweeps.sections.formats import NONE
from sweeps.sections.section import Block, Grid, Say, Section

RATES = {"decode": "decode_tokens_per_s", "prefill": "prefill_tokens_per_s"}


def sections(table: Table) -> Iterator[Block]:
    """A section where the devices differ in class of kernels; nothing else."""
    devices: list[dict[str, Any]] = table.provenance.get("software") or []
    if not devices:
        return
    rows: list[list[str]] = []
    own: set[int] = set()
    for device in devices:
        for name, rates in device["by_class"].items():
            own |= {len(rows)} if name == device["class"] else set()
            rows.append([device["device"], name, *_cells(rates, devices[0]["by_class"][name])])
    kinds = (" tokens/s", ", over the first")
    heads = ["device", "kernels of class", *(f"{what}{kind}" for what in RATES for kind in kinds)]
    note = (
        f"{BATCH} requests that decode {OUTPUT} tokens after {PROMPT:,}, and one prompt of as many,"
        " by the closed forms of docs/memory-time.md; marked: the device's own class. To run all of"
        f" it under one class: --set device_set.kernels={{class: {devices[0]['class']}}}."
    )
    yield Section("What of it is software", [
        Say(_sentence(devices), "verdict"), Grid("", heads, rows, marked=frozenset(own)), Say(note),
        _programs(devices),
    ])  # fmt: skip


def _programs(devices: list[dict[str, Any]]) -> Grid:
    """What each description says of programs, which no class changes."""
    keys = ("program", "derate", "prefill_efficiency", "decode_efficiency", "overlap")
    rows = [[each["device"], *(f"{each[key]}" for key in keys)] for each in devices]
    return Grid("As described", ["device", *keys], rows, text=True)


def _cells(rates: dict[str, float] | None, first: dict[str, float] | None) -> list[str]:
    if rates is None or first is None:
        return [NONE] * 4
    return [
        cell for key in RATES.values()
        for cell in (f"{rates[key]:,.0f}", f"{rates[key] / first[key]:.3g}")
    ]  # fmt: skip


def _sentence(devices: list[dict[str, Any]]) -> str:
    """Of the first two devices that differ in class."""
    first = devices[0]
    other = next(each for each in devices if each["class"] != first["class"])
    names = "; ".join(f"{each['device']}: {each['class']}" for each in devices)
    return f"The devices differ in their class of kernels ({names}). {_ratios(first, other)}"


def _ratios(first: dict[str, Any], other: dict[str, Any]) -> str:
    told = []
    for what, key in RATES.items():
        own = first["by_class"][first["class"]], other["by_class"][other["class"]]
        same = [
            f"{other['by_class'][name][key] / first['by_class'][name][key]:.3g} under {name}"
            for name in dict.fromkeys((first["class"], other["class"]))
            if first["by_class"][name] and other["by_class"][name]
        ]
        if None not in own and same:
            ratio = own[1][key] / own[0][key]
            told.append(f"{what} {ratio:.3g} times, but {' and '.join(same)}")
    if not told:
        return "Their steps have no closed form here, so that no share is said."
    return (
        f"{other['device']} over {first['device']}, each with its own kernels: {'; '.join(told)}:"
        " what is left of the ratio under one class is memory, FLOPs and their efficiencies;"
        " the rest is software."
    )

"""Closed-form bounds of the shipped memories beside what is simulated."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hwmodel.measure.tightness import tightness
from hwmodel.specs.device import load_device
from sweeps.render.screen import print_table


def add_simulated(catalogue: dict[str, Any], overrides: list[str]) -> None:
    """Give each memory of a catalogue its `simulated` figures, GB/s of one channel by pattern."""
    memories = [device for device in catalogue["devices"] if device["kind"] == "memory"]
    described = [load_device(device["name"], overrides).memory for device in memories]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # the kernels hold no lock
        for device, found in zip(memories, pool.map(tightness, described), strict=True):
            device["simulated"] = {name: figures._asdict() for name, figures in found.items()}


def show_simulated(catalogue: dict[str, Any]) -> None:
    """A line a pattern of each memory: its bound, what binds, and the simulated figures."""
    rows = []
    for device in catalogue["devices"]:
        for name, figures in device.get("simulated", {}).items():
            bound = device["bounds"][name]
            rows.append(
                [
                    device["name"],
                    name.replace("_", " "),
                    *(f"{gbps:,.2f}" for gbps in (bound["gbps"], *figures.values())),
                    ", ".join(bound["binding"]),
                ]
            )
    if not rows:
        return
    print("\nReads of one channel, GB/s:\n")
    columns = ["memory", "pattern", "bound", "rotating", "as described", "bound by"]
    print_table(columns, rows, "<<>>><")
    print(
        "\nrotating: simulated under what the bound assumes (banks in turn, auto-precharge, no"
        "\nper-bank refresh). as described: the memory's own controller and map, in address order"
        "\nor at places drawn at random."
    )

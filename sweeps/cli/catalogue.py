"""What ships: devices with their peaks, capacities and bounds; the names of the rest."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import names
from hwmodel.measure.bounds import bounds
from hwmodel.measure.tightness import tightness
from hwmodel.specs.device import Device, device_names, load_device
from hwmodel.specs.transformer import load_model
from policies.allocators.registry import POLICIES
from sweeps.report.screen import print_table

OTHERS = ("links", "models", "formats", "workloads", "predictors", "sweeps", "studies")

SMALL = ("llama-3.2-3b", "q4_k_m")
"""A small model in a small format: what on-chip memory is held against."""


def catalogue(overrides: list[str], chosen: list[str] | None = None) -> dict[str, Any]:
    """Devices (each a dict; the chosen ones, or all that ship); `policies` with the reading of
    each; the names of the rest.

    Devices that overrides do not fit are `left_out`, with the reason. Raises DescriptionError when
    that leaves none.
    """
    devices: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    for name in chosen or device_names():
        try:
            devices.append(_entry(load_device(name, overrides)))
        except DescriptionError as error:
            if chosen:
                raise
            left_out[name] = str(error)
            refused = error
    if not devices:
        raise refused
    policies = {name: policy.reading for name, policy in POLICIES.items()}
    others = {kind: names(kind) for kind in OTHERS}
    return {"devices": devices, "left_out": left_out, "policies": policies, **others}


def _entry(device: Device) -> dict[str, Any]:
    spec = device.accelerator or device.memory
    memory = device.described
    return {
        "name": device.name,
        "kind": spec.kind,
        "summary": spec.summary,
        "memory": "given" if memory is None else memory.name,
        "channels": None if memory is None else device.channels,
        "peak_gbps": device.peak_gbps,
        **_published(device),
        "capacity_bytes": device.capacity_bytes,
        "bounds": {
            name: {"gbps": bound.gbps * device.channels, "binding": list(bound.binding)}
            for name, bound in ({} if memory is None else bounds(memory)).items()
        },
        "assumed": len(device.assumed),
        "plausible": {name: variant.why for name, variant in device.plausible.items()},
    }


def _published(device: Device) -> dict[str, Any]:
    """The peak that is sold, and what on-chip memory does to a small model's traffic."""
    spec, (name, weights) = device.accelerator, SMALL
    found: dict[str, Any] = {"published_gbps": None, "on_chip": None}
    if spec is not None and spec.bus is not None:
        found["published_gbps"] = spec.bus.peak / 1e9
    if spec is not None and (before := spec.before_memory) is not None:
        step = load_model(name).stored_as(weights, None).step_weight_bytes
        found["on_chip"] = before.remark(f"{name} in {weights}", step)
    return found


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
            gbps = (f"{each:,.2f}" for each in (bound["gbps"], *figures.values()))
            binding = ", ".join(bound["binding"])
            rows.append([device["name"], name.replace("_", " "), *gbps, binding])
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

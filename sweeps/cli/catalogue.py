"""What ships: devices with their peaks, capacities and bounds; the names of the rest."""

from __future__ import annotations

from typing import Any

from hwmodel.description.description import DescriptionError, names
from hwmodel.measure.bounds import bounds
from hwmodel.specs.device import Device, device_names, load_device

OTHERS = ("models", "workloads", "predictors", "sweeps", "studies")


def catalogue(overrides: list[str]) -> dict[str, Any]:
    """Devices (each a dict); names of models, workloads, predictors, sweeps and studies.

    Devices that overrides do not fit are `left_out`, with the reason. Raises DescriptionError when
    that leaves none.
    """
    devices: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    for name in device_names():
        try:
            devices.append(_entry(load_device(name, overrides)))
        except DescriptionError as error:
            left_out[name] = str(error)
            refused = error
    if not devices:
        raise refused
    return {"devices": devices, "left_out": left_out, **{kind: names(kind) for kind in OTHERS}}


def _entry(device: Device) -> dict[str, Any]:
    spec = device.accelerator or device.memory
    return {
        "name": device.name,
        "kind": spec.kind,
        "summary": spec.summary,
        "memory": device.memory.name,
        "channels": device.channels,
        "peak_gbps": device.peak_gbps,
        "capacity_bytes": device.capacity_bytes,
        "bounds": {
            name: {"gbps": bound.gbps * device.channels, "binding": list(bound.binding)}
            for name, bound in bounds(device.memory).items()
        },
        "assumed": len(device.assumed),
        "plausible": {name: variant.why for name, variant in device.plausible.items()},
    }

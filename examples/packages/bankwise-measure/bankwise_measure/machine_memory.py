"""What was measured of this machine's memory as files: measurements that `validate` compares, and a
device that has their efficiency."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from bankwise_measure.access_points import RUN, AccessPoint
from bankwise_measure.median import Median, median
from bankwise_measure.rounds import Benchmark, Measured
from hwmodel.description.description import DescriptionError
from hwmodel.description.library import find
from hwmodel.description.yaml_writer import to_yaml
from hwmodel.measure.pattern import Pattern, bandwidth
from hwmodel.specs.device import Device, load_device

TOLERANCES = (5, 10, 20, 50, 100)
"""Percent: a cell has the first that is not less than its spread."""
IN_ORDER = Pattern.model_validate({"size": f"{RUN}B"})
FILES = ("measurements.yaml", "device.yaml")


def device_to_compare(name: str) -> Device:
    """A device that this machine may be compared with. Raises DescriptionError."""
    device = load_device(name)
    if device.accelerator is None:
        raise DescriptionError(
            f"{name} is one channel of a memory; describe the machine by bankwise new device",
            "--device",
        )
    return device


def measurements(found: Benchmark, device: str, date: datetime.date) -> dict[str, Any]:
    """The file of kind `measurement`, of `device`, or of none that is named ("")."""
    machine = found.machine
    busy = f"; others ran, load {machine.load:g}" if machine.busy else ""
    shared = machine.busy or machine.virtual  # by others, who take a part of what there is
    cells = [*(_cell(each, shared) for each in found.measured), *_latency_cells(found, shared)]
    used_tolerances = {cell["tolerance"] for cell in cells}
    return {
        "kind": "measurement", "name": "this-machine",
        "summary": f"memory of {machine.cpu}, {found.threads:,} threads",
        "sources": {
            "measured": f"bankwise measure on {date.isoformat()}: {machine.told};"
            f" {found.how}; medians of {found.effort.rounds} rounds{busy}"
        },
        **({"device": device} if device else {}),
        "tolerances": {
            f"spread {share}": {"within": f"{share}%", "reason": "no less than the cell's spread"}
            for share in TOLERANCES
            if f"spread {share}" in used_tolerances
        },
        "cells": [cell | {"confidence": "C" if machine.virtual else "A"} for cell in cells],
    }  # fmt: skip


def overlay(found: Benchmark, device: Device, name: str, date: datetime.date) -> dict[str, Any]:
    """The device with the share of its bandwidth that reads in order reached here, and the ends of
    its interval as plausible. Raises DescriptionError where they are faster than the device."""
    best = _reach(device)
    share = [found.in_order.gbps.value / best, *_ends(found.in_order.gbps, best)]
    if share[2] > 1:
        raise DescriptionError(
            f"reads in order reach {found.in_order.gbps.value:.4g} GB/s here, {device.name} as"
            f" described {best:.4g}: it is not this memory, or its rate is too low",
            "--device",
        )
    middle, low, high = (round(each, 4) for each in share)
    bound = "; the threads bind, so that it is a lower limit" * found.in_order.requester_bound
    value = {
        "value": middle, "source": "measured",
        "note": f"{low:g} to {high:g}: reads in order over {best:.4g} GB/s{bound}",
    }  # fmt: skip
    path, laid = ("given.efficiency", "given") if device.given else ("derate", "derate")
    file = find("accelerators", name)
    data = yaml.safe_load(file.read_text(encoding="utf-8"))
    for key in ("memory", "based_on"):
        if str(data.get(key, "")).endswith((".yaml", ".yml")):
            data[key] = str((file.parent / data[key]).resolve())
    told = f"bankwise measure on {date.isoformat()}: {found.machine.told}"
    data["name"] = f"{device.name}-measured"
    data["summary"] = f"{data['summary']}; efficiency as measured"
    data["sources"] = {**data.get("sources", {}), "measured": told}
    data[laid] = {**data["given"], "efficiency": value} if device.given else value
    data["plausible"] = data.get("plausible", {}) | {
        f"{end} measured": {"set": {path: share}, "why": f"the {end} end of its interval"}
        for end, share in (("lower", low), ("upper", high))
    }
    return data


def write(folder: Path, found: Benchmark, device: Device | None, name: str) -> list[Path]:
    """The files, in a folder that is there. Raises DescriptionError where the device is slower than
    what was measured; the measurements are then there."""
    date = datetime.date.today()
    simulated = name if device is not None and device.given is None else ""
    if simulated.endswith((".yaml", ".yml")):
        simulated = str(Path(simulated).resolve())
    files = [folder / each for each in FILES]
    files[0].write_text(to_yaml(measurements(found, simulated, date)), encoding="utf-8")
    if device is None:
        return files[:1]
    files[1].write_text(to_yaml(overlay(found, device, name, date)), encoding="utf-8")
    load_device(str(files[1]))
    return files


def block_ratios(found: Benchmark) -> Iterator[tuple[int, Median]]:
    """Size of an extent, and the bandwidth of blocks over that of one run, paired by round."""
    blocks = [each for each in found.measured if each.point.kind == "blocks"]
    for each in blocks:
        run = found.of("run", each.point.size)
        if run is not None:
            pairs = zip(each.each, run.each, strict=True)
            yield each.point.size, median([ours / theirs for ours, theirs in pairs])


def _reach(device: Device) -> float:
    """GB/s of reads in order before the share that is lost on the way."""
    if device.given is not None:
        return device.given.bandwidth / 1e9
    return float(bandwidth(device, IN_ORDER)["bandwidth_gbps"])


def _ends(found: Median, best: float) -> list[float]:
    return [found.low / best, found.high / best]


def _cell(found: Measured, shared: bool) -> dict[str, Any]:
    value, point = found.gbps, found.point
    half = "" if found.half is None else f"; half the threads {found.half.value:.4g}"
    return {
        "what": point.name, "bandwidth": _pattern(point), "measured": f"{value.value:.4g}GB/s",
        "tolerance": _tolerance(value), "source": "measured",
        **({"stands": "lower_limit"} if shared or found.requester_bound else {}),
        "note": f"{value.low:.4g} to {value.high:.4g}{half}",
    }  # fmt: skip


def _latency_cells(found: Benchmark, shared: bool) -> Iterator[dict[str, Any]]:
    for each in found.latencies:
        yield {
            "what": f"dependent reads in {each.window / 2**20:.0f} MiB",
            "latency": {"window": f"{each.window}B"}, "measured": f"{each.ns.value:.4g}ns",
            "tolerance": _tolerance(each.ns), "source": "measured",
            **({"stands": "lower_limit"} if shared else {}),
            "note": f"{each.ns.low:.4g} to {each.ns.high:.4g}; caches and page walks are in it",
        }  # fmt: skip


def _pattern(point: AccessPoint) -> dict[str, Any]:
    pattern: dict[str, Any] = {"size": f"{point.size}B"}
    if point.stride is not None:
        pattern["stride"] = f"{point.stride}B"
    if point.random:
        pattern["random"] = True
    if point.mix != (1, 0):
        pattern["mix"] = f"{point.mix[0]}R:{point.mix[1]}W"
    return pattern


def _tolerance(found: Median) -> str:
    share = next((each for each in TOLERANCES if 100 * found.spread <= each), TOLERANCES[-1])
    return f"spread {share}"

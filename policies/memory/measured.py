"""Public measurements as data, each held against the model: within its tolerance, or refuted.

A cell is one measured figure with its set-up, tolerance and source. The YAML's `prediction` was
written down before the comparison; `cause` and `agrees` after it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

from hwmodel.description.description import (
    DescriptionError,
    Document,
    KeyPath,
    Mark,
    Strict,
    checked,
    nearest,
)
from hwmodel.description.library import find
from hwmodel.description.units import Nanoseconds
from hwmodel.description.yaml_reader import load
from hwmodel.measure.pattern import Pattern, bandwidth, channel_latency, device_latency
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.transformer import load_model
from policies.memory.attention_read import AttentionRead, attention_rate
from policies.memory.layout_read import LayoutRead, layout_gbps
from policies.memory.measured_cells import (
    UNITS,
    ComparedCell,
    MeasuredCell,
    ReadLatency,
    Recorded,
    Settings,
    TimedBy,
    Tolerance,
    half_width,
)
from policies.memory.measured_steps import (
    Decode,
    Prefill,
    Runtime,
    decode_time,
    kv_rate,
    prefill_time,
)


class MemoryCell(MeasuredCell):
    """A figure of a memory or of a step; exactly one of the keys of `UNITS` says of what."""

    bandwidth: Pattern | None = None
    latency: ReadLatency | None = None
    energy: Pattern | None = None
    decode: Decode | None = None
    prefill: Prefill | None = None
    attention: AttentionRead | None = None
    kv_order: LayoutRead | None = None
    layout: Recorded | None = None
    setup: str | None = None
    """One of the file by name."""
    runtime: str | None = None
    """Of a decode cell."""
    model: str | None = None
    """Of a decode or prefill cell. None: the file's."""

    @property
    def kind(self) -> str:
        return next(kind for kind in UNITS if getattr(self, kind) is not None)

    @property
    def divided(self) -> bool:
        against = self.attention is not None and self.attention.against is not None
        ordered = self.kv_order is not None and self.kv_order.against is not None
        recorded = self.layout is not None and self.stated.unit == "x"
        return super().divided or against or ordered or recorded

    @checked
    def _one_kind(self) -> None:
        given = [kind for kind in UNITS if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(f"expected one of {', '.join(UNITS)}; got {' and '.join(given)}")
        self.in_units(UNITS[given[0]])
        if self.decode is None:
            if self.runtime is not None:
                raise ValueError("runtime: stands with decode, and only there")
        elif (self.stated.unit == "GB/s") != (self.decode.since is not None):
            raise ValueError("decode.since: stands with a figure in GB/s, and only there")


class MeasurementSpec(Strict):
    """Public measurements of one device, or of some described alike."""

    kind: Literal["measurement"]
    name: str
    summary: str
    sources: dict[str, str]
    device: str = ""
    """Of every cell whose set-up names no other. Empty: it is named where the file is read."""
    model: str | None = None
    """Of decode and prefill."""
    set: Settings = {}
    """Overrides of the device."""
    setups: dict[str, Settings] = {}
    """More of them, by the name that cells use; `device` among them is another device."""
    candidates: dict[str, Settings] = {}
    """Other descriptions of the device that `make validation` holds against the same cells."""
    runtimes: dict[str, Runtime] = {}
    """Software of decode cells, by the name that they use."""
    requester: Nanoseconds = 0.0
    """What the requester adds to a channel's latency."""
    tolerances: dict[str, Tolerance]
    """By name."""
    cells: list[MemoryCell]
    """The figures."""


def load_measurements(name_or_path: str, beside: str | None = None) -> MeasurementSpec:
    """Shipped measurements by name, or a YAML file; of the device `beside` where given. Raises
    DescriptionError, also for names that are not in the file and for set-ups that are no device."""
    document = load(find("measurements", name_or_path))
    if beside is not None:
        document.put(("device",), beside, Mark(f"--device {beside}"))
    spec = document.build(MeasurementSpec)
    if not spec.device:
        raise document.error("names none; --device names what to compare with", ("device",))
    for i, cell in enumerate(spec.cells):
        place: KeyPath = ("cells", i)
        if cell.interval is None:
            _known(document, (*place, "tolerance"), cell.tolerance, spec.tolerances)
        _known(document, (*place, "source"), cell.source, spec.sources)
        for key, known in (
            ("setup", spec.setups),
            ("over", spec.setups),
            ("runtime", spec.runtimes),
        ):
            if (name := getattr(cell, key)) is not None:
                _known(document, (*place, key), name, known)
        if cell.kind in ("decode", "prefill") and (cell.model or spec.model) is None:
            raise document.error(f"a {cell.kind} needs a model in the file", place)
    for path, settings in _described(spec):
        try:
            device = _device(spec, settings)
        except DescriptionError as error:
            name = settings.get("device", spec.device)
            raise document.error(f"{name}: {error}", path) from None
    for i, cell in enumerate(spec.cells):
        needed = "row" if device.accelerator is None else "window"
        if cell.latency is not None and getattr(cell.latency, needed) is None:
            raise document.error(f"{spec.device} needs {needed}", ("cells", i, "latency"))
        if cell.runtime is not None:
            try:
                _device(spec, _settings(spec, cell))
            except DescriptionError as error:
                place = ("runtimes", cell.runtime, "program")
                raise document.error(error.message, place) from None
    return spec


def _known(document: Document, path: KeyPath, name: str, known: dict[str, Any]) -> None:
    if name not in known:
        raise document.error(f"no {path[-1]} {name!r}; {nearest(name, list(known))}", path)


def _described(spec: MeasurementSpec) -> Iterator[tuple[KeyPath, Settings]]:
    yield ("device",) if not spec.set else ("set",), {}
    yield from ((("setups", name), settings) for name, settings in spec.setups.items())
    yield from ((("candidates", name), settings) for name, settings in spec.candidates.items())


def assignments(settings: Settings) -> list[str]:
    """Settings as `--set` takes them."""
    return [f"{path}={json.dumps(value)}" for path, value in settings.items()]


def _device(spec: MeasurementSpec, settings: Settings, overrides: Iterable[str] = ()) -> Device:
    """The device that these settings name, or the file's, under them and overrides."""
    laid = spec.set | settings
    name = str(laid.pop("device", spec.device))
    return load_device(name, [*assignments(laid), *overrides])


def compare(
    spec: MeasurementSpec, candidate: str | None = None, overrides: list[str] | None = None
) -> list[ComparedCell]:
    """Every cell beside the model, in the file's order; under a candidate's settings or with
    overrides of the device where given. Raises DescriptionError."""
    last = spec.candidates[candidate] if candidate else {}

    described: dict[str | None, Device] = {
        name: _device(spec, (spec.setups[name] if name else {}) | last, overrides or ())
        for name in (None, *spec.setups)
    }
    programmed = {
        (cell.setup, cell.runtime): _device(spec, _settings(spec, cell) | last, overrides or ())
        for cell in spec.cells
        if cell.runtime is not None
    }

    def one(cell: MemoryCell) -> ComparedCell:
        if cell.runtime is None:
            return _compare(spec, described, described[cell.setup], cell)
        return _compare(spec, described, programmed[cell.setup, cell.runtime], cell)

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # the kernels hold no lock
        return list(pool.map(one, spec.cells))


def _settings(spec: MeasurementSpec, cell: MemoryCell) -> Settings:
    """Of the device of a cell: those of its set-up, and the program that ran."""
    settings = dict(spec.setups[cell.setup]) if cell.setup else {}
    program = spec.runtimes[cell.runtime].program if cell.runtime else None
    return settings | ({"kernels.program": program} if program else {})


def _compare(
    spec: MeasurementSpec, described: dict[str | None, Device], device: Device, cell: MemoryCell
) -> ComparedCell:
    tolerance = half_width(cell, spec.tolerances)
    if cell.decode is not None or cell.prefill is not None:
        model = load_model(str(cell.model or spec.model))
        assert device.accelerator is not None
        law = device.accelerator.kernels
        expected = law.spread_low, law.spread_high
        by = TimedBy(law.of, device.name, model.name, expected)
        if cell.decode is not None:
            runtime = spec.runtimes[cell.runtime] if cell.runtime else Runtime()
            if cell.decode.since is not None:
                rate_found = kv_rate(device, model, cell.decode, runtime)
                share = cell.stated.value / device.peak_gbps
                return ComparedCell(cell, rate_found, tolerance, share, by=by)
            step = decode_time(device, model, cell.decode, runtime)
        else:
            assert cell.prefill is not None
            step = prefill_time(device, model, cell.prefill)
        return ComparedCell(cell, step.ms, tolerance, step.peak_ms / cell.stated.value, by=by)
    if cell.layout is not None:
        return ComparedCell(cell, cell.layout.value(), tolerance)
    if cell.attention is not None:
        of_peak = None if cell.divided else cell.stated.value / device.peak_gbps
        return ComparedCell(cell, attention_rate(device, cell.attention), tolerance, of_peak)
    if cell.kv_order is not None:
        return ComparedCell(cell, layout_gbps(device, cell.kv_order), tolerance)
    derate = device.derate if cell.bandwidth is not None and cell.over is None else 1.0
    return ComparedCell(cell, _simulated(spec, described, cell) * derate, tolerance, derate=derate)


def _simulated(
    spec: MeasurementSpec, described: dict[str | None, Device], cell: MemoryCell
) -> float:
    device = described[cell.setup]
    if cell.latency is not None:
        if cell.latency.row is not None:
            return channel_latency(device, cell.latency.row) + spec.requester
        assert cell.latency.window is not None
        return device_latency(device, cell.latency.window)
    if cell.energy is not None:
        result = bandwidth(device, cell.energy)
        return float(result["energy_nj"] * 1e3 / result["bytes"] / 8)
    assert cell.bandwidth is not None
    gbps = float(bandwidth(device, cell.bandwidth)["bandwidth_gbps"])
    if cell.over is not None:
        return gbps / float(bandwidth(described[cell.over], cell.bandwidth)["bandwidth_gbps"])
    return 100 * gbps / device.peak_gbps if cell.stated.unit == "%" else gbps

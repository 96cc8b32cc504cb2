"""Public measurements as data, each held against the model: within its tolerance, or refuted.

A cell is one measured figure with its set-up, tolerance and source. The YAML's `prediction` was
written down before the comparison; `cause` and `agrees` after it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from hwmodel.description.description import (
    DescriptionError,
    Document,
    KeyPath,
    Mark,
    Strict,
    checked,
    nearest,
)
from hwmodel.description.library import LIBRARY, find
from hwmodel.description.units import Nanoseconds, PositiveBytes
from hwmodel.description.written import text
from hwmodel.description.yaml_reader import load
from hwmodel.measure.pattern import Pattern, Row, bandwidth, channel_latency, device_latency
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.transformer import load_model
from policies.memory.attention_read import AttentionRead, attention_rate
from policies.memory.measured_steps import (
    Decode,
    Prefill,
    Runtime,
    decode_time,
    kv_rate,
    prefill_time,
)

UNITS = {
    "bandwidth": ("GB/s", "%", "x"),
    "latency": ("ns",),
    "energy": ("pJ/bit",),
    "decode": ("ms", "GB/s"),
    "prefill": ("ms",),
    "attention": ("GB/s", "x"),
    "layout": ("s", "x"),
}
"""Kind of a cell -> the units it may have; % of the device's peak, x the other set-up's, of
attention the other block's, of layout as the run has it."""
SERVER_UNITS = ("s", "ms", "tokens/s", "preemptions", "x")
"""Units of what a whole server was measured to do."""
TRANSFER_UNITS = ("descriptors", "KiB")
"""More units, of transfers."""
Verdict = Literal["within", "refuted", "lower limit", "input", "open"]
"""open: predicted, and not measured yet."""
Group = Literal["kernels and software", "missing mechanism", "assumed parameters", "not comparable"]
"""Of causes: in the program that was measured, in what the model lacks, in a number that no source
has, or in the figure, which is of something else than the model's."""


class Skipped(DescriptionError):
    """What a measurement is held against is not here: a log, or figures of a run."""


Settings = dict[str, Any]
"""Dotted path -> value, as `--set` has them."""


class Figure(NamedTuple):
    """A number and its unit."""

    value: float
    unit: str

    def __str__(self) -> str:
        number = f"{self.value:,.0f}" if self.value >= 1000 else f"{self.value:.4g}"
        return number + " " * (self.unit not in "%x") + self.unit


def _figure(value: object) -> object:
    units = "|".join(
        unit
        for known in (*UNITS.values(), SERVER_UNITS, TRANSFER_UNITS)
        for unit in dict.fromkeys(known)
    )
    match = re.fullmatch(rf"\s*([0-9]+(?:\.[0-9]+)?)\s*({units})\s*", str(value))
    if match is None or not float(match[1]):
        raise ValueError(f"expected a number with its unit, {units}; got {value!r}")
    return Figure(float(match[1]), match[2])


Written = Annotated[Figure, BeforeValidator(_figure), text(r"^\s*[0-9.]+\s*\S+$", "13.27GB/s")]


class Tolerance(Strict):
    """How far the model may be from a measurement: a share of it, or in its unit."""

    within: Written
    reason: str

    def around(self, measured: Figure) -> float:
        """Half the width of the interval, in the measurement's unit."""
        share = self.within.unit == "%"
        return self.within.value / 100 * measured.value if share else self.within.value


class Latency(Strict):
    """An idle, dependent read: on a channel by the state of its row, on a device anywhere in a
    window of its memory."""

    row: Row | None = None
    window: PositiveBytes | None = None


class Recorded(Strict):
    """A figure of a published run of ours: what repeats another one's test."""

    run: str
    """Its file of `docs/figures`."""
    figure: str
    """A figure there, its keys apart by /."""

    def value(self) -> float:
        """The figure. Raises Skipped where the repository's pages are not here."""
        file = LIBRARY.parent / "docs/figures" / f"{self.run}.json"
        if not file.is_file():
            raise Skipped("figures of runs are in the repository, and not in an installed package")
        found: Any = json.loads(file.read_text())["values"]
        for key in self.figure.split("/"):
            if not isinstance(found, dict) or key not in found:
                raise DescriptionError(f"{self.run} has no figure {self.figure!r}", file)
            found = found[key]
        return float(found["is"][0])


class MeasuredCell(Strict):
    """One measured figure: what every kind of them has."""

    what: str
    over: str | None = None
    """What the figure is divided by, in x."""
    measured: Written | None = None
    """None: nobody has, so far; there is a prediction."""
    tolerance: str = ""
    source: str
    confidence: Literal["A", "B", "C"]
    prediction: Written | None = None
    interval: Annotated[list[Written], Field(min_length=2, max_length=2)] | None = None
    """Instead of a tolerance: between what the prediction said that 19 in 20 such figures lie."""
    stands: Literal["measured", "lower_limit", "input"] = "measured"
    """lower_limit: the requester, not the memory, bound the rate, so that a time is an upper limit.
    input: the description was made of it."""
    agrees: bool = False
    """The model was found to agree, and must go on doing so."""
    sets: str = ""
    """The mechanism that was chosen with this figure in view: an agreement is counted apart."""
    cause: str = ""
    """Why the model is refuted, as far as is known."""
    group: Group | None = None
    """Where that cause lies; with `cause` alone."""
    note: str = ""

    @checked
    def _whole(self) -> None:
        if self.group is not None and not self.cause:
            raise ValueError("group: stands with a cause, and only there")
        if self.measured is None and self.prediction is None:
            raise ValueError("prediction: expected one where nothing is measured")
        if bool(self.tolerance) == (self.interval is not None):
            raise ValueError("expected a tolerance, or an interval instead")
        if self.interval is not None and self.prediction is None:
            raise ValueError("prediction: expected one within the interval")
        if (self.stated.unit == "x") != self.divided:
            raise ValueError("over: stands with a figure in x, and only there")

    @property
    def divided(self) -> bool:
        """Whether the figure is a share of another one."""
        return self.over is not None

    @property
    def stated(self) -> Figure:
        """What was measured, or was predicted where nothing is."""
        found = self.measured or self.prediction
        assert found is not None
        return found

    @property
    def kind(self) -> str:
        """What was measured."""
        raise NotImplementedError

    def in_units(self, units: tuple[str, ...]) -> None:
        """Raises ValueError where a figure has another unit than these."""
        ends = dict(zip(("low", "high"), self.interval or (), strict=False))
        given = {"measured": self.measured, "prediction": self.prediction, **ends}
        for name, figure in given.items():
            if figure is not None and figure.unit not in units:
                known = " or ".join(units)
                why = f"{name}: a figure of {self.kind} is in {known}"
                raise ValueError(f"{why}; got {figure.unit}")


class Cell(MeasuredCell):
    """A figure of a memory or of a step; exactly one of the keys of `UNITS` says of what."""

    bandwidth: Pattern | None = None
    latency: Latency | None = None
    energy: Pattern | None = None
    decode: Decode | None = None
    prefill: Prefill | None = None
    attention: AttentionRead | None = None
    layout: Recorded | None = None
    setup: str | None = None
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
        recorded = self.layout is not None and self.stated.unit == "x"
        return super().divided or against or recorded

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
    cells: list[Cell]


@dataclass(frozen=True)
class Compared:
    """A cell beside the model's figure, both in the cell's unit."""

    cell: MeasuredCell
    model: float
    """Of bandwidths what reaches the requesters (`derate`)."""
    tolerance: float
    share: float | None = None
    """Of a peak that a step time comes to: of the memory's bandwidth in decode, of the FLOPs in
    prefill; by the bytes and FLOPs that the model must move and compute."""
    derate: float = 1.0
    """By which the simulated bandwidth was multiplied."""
    kernels: str | None = None
    """Of step times, the class of kernels."""

    @property
    def error(self) -> float:
        return self.model / self.cell.stated.value - 1

    @property
    def verdict(self) -> Verdict:
        off = self.model - self.cell.stated.value
        if self.cell.measured is None:
            return "open"
        if self.cell.interval is not None:  # what was said is judged, not what is said now
            low, high = self.cell.interval
            return "within" if low.value <= self.cell.measured.value <= high.value else "refuted"
        if self.cell.stands == "input":
            return "input"
        if self.cell.stands == "lower_limit":
            slower = off if self.cell.stated.unit in ("ms", "ns") else -off
            return "lower limit" if slower <= self.tolerance else "refuted"
        return "within" if abs(off) <= self.tolerance else "refuted"

    @property
    def lost(self) -> bool:
        """Whether an agreement that was found is gone."""
        return self.cell.agrees and self.verdict == "refuted"


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


def half_width(cell: MeasuredCell, tolerances: dict[str, Tolerance]) -> float:
    """How far from the figure of a cell its interval reaches, in its unit."""
    if cell.interval is None:
        return tolerances[cell.tolerance].around(cell.stated)
    return (cell.interval[1].value - cell.interval[0].value) / 2


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
) -> list[Compared]:
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

    def one(cell: Cell) -> Compared:
        if cell.runtime is None:
            return _compare(spec, described, described[cell.setup], cell)
        return _compare(spec, described, programmed[cell.setup, cell.runtime], cell)

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # the kernels hold no lock
        return list(pool.map(one, spec.cells))


def _settings(spec: MeasurementSpec, cell: Cell) -> Settings:
    """Of the device of a cell: those of its set-up, and the program that ran."""
    settings = dict(spec.setups[cell.setup]) if cell.setup else {}
    program = spec.runtimes[cell.runtime].program if cell.runtime else None
    return settings | ({"kernels.program": program} if program else {})


def _compare(
    spec: MeasurementSpec, described: dict[str | None, Device], device: Device, cell: Cell
) -> Compared:
    tolerance = half_width(cell, spec.tolerances)
    law = None if device.accelerator is None else device.accelerator.kernels.of
    if cell.decode is not None or cell.prefill is not None:
        model = load_model(str(cell.model or spec.model))
        if cell.decode is not None:
            runtime = spec.runtimes[cell.runtime] if cell.runtime else Runtime()
            if cell.decode.since is not None:
                rate_found = kv_rate(device, model, cell.decode, runtime)
                share = cell.stated.value / device.peak_gbps
                return Compared(cell, rate_found, tolerance, share, kernels=law)
            step = decode_time(device, model, cell.decode, runtime)
        else:
            assert cell.prefill is not None
            step = prefill_time(device, model, cell.prefill)
        return Compared(cell, step.ms, tolerance, step.peak_ms / cell.stated.value, kernels=law)
    if cell.layout is not None:
        return Compared(cell, cell.layout.value(), tolerance)
    if cell.attention is not None:
        of_peak = None if cell.divided else cell.stated.value / device.peak_gbps
        return Compared(cell, attention_rate(device, cell.attention), tolerance, of_peak)
    derate = device.derate if cell.bandwidth is not None and cell.over is None else 1.0
    return Compared(cell, _simulated(spec, described, cell) * derate, tolerance, derate=derate)


def _simulated(spec: MeasurementSpec, described: dict[str | None, Device], cell: Cell) -> float:
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

"""A run's DRAM accesses as a trace: one replication of a point is served a step at a time, and what
the chosen steps move is issued by the device's engines into a file, which holds it as it comes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hwmodel.description.description import DescriptionError, nearest
from hwmodel.measure.issued import Issuer
from hwmodel.measure.peer_mapper import not_linear, peer_mapper
from hwmodel.measure.simulator_traces import FORMATS
from hwmodel.measure.trace_format import Format
from hwmodel.measure.trace_writer import TraceWriter, trace_writer
from hwmodel.specs.device import Device, load_device
from policies.memory.mapped import CardStreams
from policies.memory.step_streams import PHASES
from policies.serving.node import Node
from policies.serving.simulation import Watcher
from policies.serving.unit import ReplicaSteps
from sweeps.analyse.label import named
from sweeps.plan.experiment import (
    ExperimentSpec,
    Task,
    device_of,
    requests_of,
    run_cell,
    serve_requests,
    workload_of,
)
from sweeps.plan.sweep_spec import Point
from sweeps.run.one_point import opened, point_of, rate_of, refuse_replication

ALL = "all"


@dataclass(frozen=True)
class WantedTrace:
    """What of a run goes into a trace, and how; texts as on the command line."""

    steps: str = "100"
    """`N`, `A:B` (B is not in it), `A:` or `all`; steps count from 0."""
    layers: str = "0"
    """Likewise."""
    phase: str = "attention"
    """One of PHASES, or `all`."""
    channel: int | None = None
    """Only this one's, at addresses local to it; None: all, at addresses of the device."""
    format: str = "bankwise"
    at_once: bool = False
    """All times are 0, instead of those at which requests reach their channels."""
    mapper: str | None = None
    """The peer's mapper that addresses are encoded for; None: addresses of our map."""
    replica: int = 0
    """The replica whose steps these are, of pools those that prefill first."""


@dataclass
class Exported:
    """What was written. `steps`: step, start_s, decode, context_tokens and prefill_tokens of each;
    bytes and counts of bursts; `memory_ns`: what the streams took, one after the other."""

    device: str
    point: int
    overrides: dict[str, Any]
    format: str
    lacks: str
    channel: int | None
    burst_bytes: int
    steps: list[dict[str, Any]] = field(default_factory=list)
    accesses: int = 0
    writes: int = 0
    partial_writes: int = 0
    bytes: int = 0
    memory_ns: float = 0.0
    mapper: str | None = None
    warnings: list[str] = field(default_factory=list)


class _Enough(Exception):
    """The last step that is wanted is there."""


class _Export(Watcher):
    """Issues the streams of the chosen steps of a replica, where they lie; ends the run after the
    last. layers: as on the command line, of those that the replica's cards have."""

    def __init__(
        self, issuer: Issuer, writer: TraceWriter, found: Exported, steps: range, layers: str,
        phases: tuple[str, ...], replica: int,
    ) -> None:  # fmt: skip
        self._issuer, self._writer = issuer, writer
        self._found, self._steps, self._phases = found, steps, phases
        self._wanted, self._replica = layers, replica
        self._layers: range | None = None
        self.passed = 0
        """Steps so far."""

    def began(self, node: Node, part: ReplicaSteps, end_s: float) -> None:
        replica, step = part.replica, part.step
        if node.replica_of(self._replica) is not replica:
            return
        streams: CardStreams = replica.memory.streams
        if self._layers is None:
            self._layers = _span(self._wanted, "--layers", streams.layers)
        if self.passed in self._steps:
            layers = [layer for layer in self._layers if layer < streams.layers]
            moved = streams.of(step, replica.engine.allocator, layers, self._phases, self.passed)
            for stream, frames in moved:
                for issued in self._issuer.issue(stream, frames):
                    self._writer.add(issued)
            self._found.steps.append(
                {
                    "step": self.passed, "start_s": replica.now_s, "decode": len(step.decode),
                    "context_tokens": step.context,
                    "prefill_tokens": sum(chunk.tokens for chunk in step.chunks),
                }
            )  # fmt: skip
        self.passed += 1
        if self.passed == self._steps.stop:
            raise _Enough


def export(
    given: str, out: Path, wanted: WantedTrace, overrides: Iterable[str] = (),
    point: int | None = None, replication: int = 1, jobs: int = 1,
) -> Exported:  # fmt: skip
    """Serve a replication of a point of a sweep, or of a run directory with its measured
    capacities, and write the trace `out`. Raises DescriptionError; then nothing is written."""
    form = _format(wanted.format, out)
    steps = _span(wanted.steps, "--steps", 1 << 62)
    phases = _phases(wanted.phase)
    sweep, known = opened(given, overrides)
    chosen = point_of(sweep, point)
    experiment = chosen.experiment
    if not isinstance(experiment, ExperimentSpec):
        why = f"measures {sweep.spec.measure}; only a sweep that serves requests has steps"
        raise DescriptionError(why, given)
    refuse_replication(experiment, replication)
    device = _device_of(experiment, wanted.replica)
    if wanted.channel is not None and not 0 <= wanted.channel < device.channels:
        why = f"expected 0 to {device.channels - 1} of {device.name}; got {wanted.channel}"
        raise DescriptionError(why, "--channel")
    mapper = None
    if wanted.mapper is not None:
        mapper = peer_mapper(wanted.mapper, form.name, device, wanted.channel is not None)
    _span(wanted.layers, "--layers", 1 << 62)  # a wrong form is known now
    rate = rate_of(sweep, chosen, replication, known, jobs)
    burst = device.memory.organisation.burst_bytes
    lacks = "nothing" if out.suffix == ".npz" else form.lacks
    found = Exported(
        device.name, chosen.index, chosen.overrides, form.name, lacks, wanted.channel, burst
    )
    experiment = experiment.model_copy(update={"serving": experiment.serving.one_by_one()})
    cells = experiment.serving.cluster.cells
    cell, replica = divmod(wanted.replica, experiment.serving.cluster.cards // cells)
    task = Task(experiment, replication, rate, cell=cell)
    issuer = Issuer(device)
    with trace_writer(
        out, form, device, wanted.channel, wanted.at_once, _remark(device, chosen, wanted), mapper
    ) as writer:
        number = wanted.replica if cells == 1 else replica
        steps_of = _Export(issuer, writer, found, steps, wanted.layers, phases, number)
        with suppress(_Enough):
            if cells > 1:
                run_cell(task, [steps_of])
            else:
                requests = requests_of(experiment, replication, rate, workload_of(experiment))
                serve_requests(experiment, replication, requests, None, watchers=[steps_of])
        _refuse_nothing(steps_of.passed, steps, writer, wanted)
    found.accesses, found.writes, found.bytes = writer.accesses, writer.writes, writer.bytes
    found.partial_writes = writer.partial_writes
    found.memory_ns = device.memory.tick_clock.ns_of_ticks(issuer.tick)
    found.mapper = wanted.mapper
    found.warnings = _warnings(found, form, device)
    return found


def _device_of(experiment: ExperimentSpec, number: int) -> Device:
    """The device of a replica. Raises DescriptionError for one that is not there."""
    device = device_of(experiment)
    try:
        half = experiment.serving.half_of(number)
    except DescriptionError as error:
        raise DescriptionError(str(error), "--replica") from None
    return device if half is None or half.device is None else load_device(half.device)


def _warnings(found: Exported, form: Format, device: Device) -> list[str]:
    """What the peer that reads the trace would get wrong in silence."""
    if form.vector and found.writes:
        return [
            "Ramulator's ReadWriteTrace leaves writes without an address, so that later reads are "
            "forwarded; use --format ramulator --mapper RoBaRaCoCh"
        ]
    odd = not_linear(device, found.channel is not None)
    if form.name not in ("ramulator", "dramsim3", "gem5") or found.mapper or not odd:
        return []
    how = " --format ramulator or dramsim3 and" if form.name == "gem5" else ""
    return [
        f"the map of {device.name} has {' and '.join(odd)}, which a linear mapper reads as other "
        f"places; use{how} --mapper"
    ]


def _refuse_nothing(passed: int, steps: range, writer: TraceWriter, wanted: WantedTrace) -> None:
    whole = steps.stop == 1 << 62  # to the end, whenever that is
    if passed <= steps.start or (passed < steps.stop and not whole):
        raise DescriptionError(
            f"the run has {passed} steps, 0 to {passed - 1}; got {wanted.steps}", "--steps"
        )
    if not writer.accesses:
        where = "" if wanted.channel is None else f" on channel {wanted.channel}"
        raise DescriptionError(
            f"steps {wanted.steps} move nothing in this phase{where}; got {wanted.phase}", "--phase"
        )


def _remark(device: Device, point: Point, wanted: WantedTrace) -> str:
    labels = ", ".join(named(axis, value) for axis, value in point.overrides.items())
    where = "device" if wanted.channel is None else f"channel-{wanted.channel}"
    return (
        f"{device.name}: {labels or 'one point'}; steps {wanted.steps}, layers {wanted.layers}, "
        f"{wanted.phase}; {where} addresses in order of arrival, one burst of "
        f"{device.memory.organisation.burst_bytes} B a line, no times"
    )


def _format(name: str, out: Path) -> Format:
    known = {form.name: form for form in FORMATS}
    if name not in known:
        raise DescriptionError(f"unknown format {name!r}; {nearest(name, list(known))}", "--format")
    if out.suffix == ".npz" and name != "bankwise":
        raise DescriptionError(f".npz is of format bankwise; got {name}", "--format")
    if out.is_dir():
        raise DescriptionError("is a directory; expected the name of a file", out)
    return known[name]


def _phases(name: str) -> tuple[str, ...]:
    if name != ALL and name not in PHASES:
        known = [*PHASES, ALL]
        raise DescriptionError(f"unknown phase {name!r}; {nearest(name, known)}", "--phase")
    return PHASES if name == ALL else (name,)


def _span(text: str, option: str, end: int) -> range:
    """`N`, `A:B`, `A:` or `all` of [0, end)."""
    matched = re.fullmatch(r"(\d+)(:(\d*))?", text)
    if text == ALL:
        return range(end)
    if matched is None:
        raise DescriptionError(f"expected N, A:B, A: or all; got {text!r}", option)
    first = int(matched[1])
    last = first + 1 if matched[2] is None else int(matched[3] or end)
    if not first < last <= end:
        limit = f" of 0 to {end - 1}" if end < 1 << 62 else ""
        raise DescriptionError(f"expected a first below the end{limit}; got {text}", option)
    return range(first, last)

"""The atlas: what reading KV costs by the size of the extents it lies in.

Each DMA engine reads extents of one size that lie anywhere (`hwmodel.measure.racm.read_extents`),
and the engines together read one run in order. With both efficiencies come the times of a stated
decode step whose KV lies so, and in order. What a layout costs is measured against the largest
extents, which are as contiguous runs of many requests, not against the run in order, which no
layout reaches.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from hwmodel.description.units import Nanoseconds, PositiveBytes, parse_quantity
from hwmodel.measure.racm import read_extents
from hwmodel.measure.stream import slot_bytes
from hwmodel.specs.device import load_device
from policies.engines.scheduled_step import Step
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from sweeps.analyse.least import least
from sweeps.analyse.objective import KV_READ, Objective
from sweeps.analyse.table import Table
from sweeps.plan.experiment import (
    Count,
    Described,
    Task,
    assignments,
    device_of,
    model_of,
    seed_of,
)

ALIGN, LOST = "align", "throughput_lost"

COSTLY = 0.05
"""Share of the throughput that a layout may cost (assumed)."""


class ExtentSpec(Described):
    """Extents of one size on one device, as the `base` of a sweep with `measure: atlas` describes
    it."""

    extent: PositiveBytes
    """Bytes that lie together."""
    align: PositiveBytes = 1
    """Each extent begins at a multiple of so many bytes; its slot is rounded up to one."""
    measured: Annotated[Nanoseconds, Field(gt=0)] = 16_000.0
    """Simulated time that is counted; of the run in order, four times as much."""
    sequences: Count = 64
    """That are read at once."""
    context: Count = 2048
    """Of the decode step whose throughput is stated: requests, and tokens of each."""

    objective: ClassVar[Objective | None] = KV_READ

    @classmethod
    def found(cls, table: Table) -> Atlas:
        each = cells(table)
        return Atlas(each, enough(each), slots(each))

    def measure(self, task: Task) -> dict[str, Any]:
        return read(task)

    @classmethod
    def rehearsals(cls, experiments: Iterable[ExtentSpec]) -> Sequence[ExtentSpec]:
        """The first, briefly, for its kernels; every device is read."""
        found = list(experiments)
        for each in found:
            device_of(each)
        return [found[0].model_copy(update={"measured": 100.0})]


def read(task: Task) -> dict[str, Any]:
    """Read extents of one size, one replication. Raises DescriptionError."""
    spec: ExtentSpec = task.experiment
    device, model = device_of(spec), model_of(spec)
    seed = seed_of(spec, task.replication)
    rng = np.random.default_rng([*seed, int(spec.extent)])
    extent, align = int(spec.extent), int(spec.align)
    found = read_extents(device, extent, rng, spec.measured, align=align)
    efficiency = found.gbps / device.peak_gbps
    settings = tuple(assignments(spec.device_set))
    in_order = _in_order(spec.device, settings, spec.measured, seed)
    steps = StepModel(device, model)
    tokens = spec.sequences * spec.context
    step = Step(np.arange(spec.sequences), tokens, [], [], 0, "offered_load")
    at, best = (
        steps.times(step, 1, Efficiency(in_order * device.derate, share * device.derate))
        for share in (efficiency, in_order)
    )
    return {
        "kv_gbps": found.gbps,
        "efficiency": efficiency,
        "in_order": in_order,
        "row_hit_rate": found.row_hit_rate,
        "kv_share": float(at.attention_s[0] / at.total_s[0]),
        LOST: 1 - float(best.total_s[0] / at.total_s[0]),
    }


@lru_cache(maxsize=64)
def _in_order(
    name: str, overrides: tuple[str, ...], measured_ns: float, seed: tuple[int, int]
) -> float:
    """Efficiency of one run that the engines share."""
    device = load_device(name, overrides)
    found = read_extents(device, None, np.random.default_rng(seed), 4 * measured_ns)
    return found.gbps / device.peak_gbps


class Cell(NamedTuple):
    """A point of a run, the mean of its replications."""

    row: str
    """What the run compares: its memories, where those differ."""
    extent: int
    described: bool
    """Whether every other axis has its first value."""
    overrides: dict[str, Any]
    efficiency: float
    lost: float
    """Of the throughput with the largest extents of the run, all else being the same."""

    @property
    def slot(self) -> int:
        """Bytes from an extent to the next."""
        return slot_bytes(self.extent, _size(self.overrides.get(ALIGN, "1B")))


def cells(table: Table) -> list[Cell]:
    """The points of a run that have results."""
    axes, compared = table.config["axes"], table.config["compare"]
    others = [path for path in axes if path not in ("extent", compared)]
    found = []
    for row in (row for group in table.groups for row in group.main()):
        over = {path: row.overrides.get(path) for path in axes}
        values = [row.mean(name) for name in ("efficiency", LOST)]
        if "extent" in axes and None not in values:
            value = over[compared]
            name = value["memory"] if isinstance(value, dict) and "memory" in value else row.name
            described = all(over[path] == axes[path][0] for path in others)
            found.append(Cell(name, _size(over["extent"]), described, over, *map(float, values)))  # type: ignore[arg-type]
    largest = max((cell.extent for cell in found), default=0)
    base = {_setting(cell): 1 - cell.lost for cell in found if cell.extent == largest}
    return [
        cell._replace(lost=1 - (1 - cell.lost) / base[_setting(cell)])
        for cell in found
        if _setting(cell) in base
    ]


class Enough(NamedTuple):
    """Of one memory: the least simulated extent from which on layout costs at most `COSTLY` of
    throughput, as described and in the worst case; None where none is enough."""

    row: str
    described: int | None
    worst: int | None


def enough(found: list[Cell]) -> list[Enough]:
    """The extents that are enough, of each memory all of whose extents have results."""
    sizes = sorted({cell.extent for cell in found})

    def from_which(cells: list[Cell]) -> int | None:
        costly = {cell.extent for cell in cells if cell.lost > COSTLY}
        return least(sizes, lambda size: size not in costly)

    return [
        Enough(name, from_which([c for c in own if c.described]), from_which(own))
        for name in dict.fromkeys(cell.row for cell in found)
        for own in [[c for c in found if c.row == name]]
        if {c.extent for c in own if c.described} == set(sizes)
    ]


class Slot(NamedTuple):
    """Extents of one size on one memory in slots of `size` bytes, all else as described."""

    row: str
    extent: int
    size: int
    padding: float
    """Share of the bytes that holds nothing."""
    gained: float
    """KV read, over that of packed extents."""
    lost: float
    """Throughput, as of a cell."""


@dataclass(frozen=True)
class Atlas:
    """What a run found of the sizes of extents."""

    cells: list[Cell]
    enough: list[Enough]
    slots: list[Slot]


def slots(found: list[Cell]) -> list[Slot]:
    """What aligned slots cost and gain, where a run varies `align` from packed on; each size of a
    slot once."""
    packed = {(c.row, c.extent): c for c in found if c.slot == c.extent and c.described}
    compared = {
        (c.row, c.extent, c.slot): c
        for c in found
        if (c.row, c.extent) in packed
        and _setting(c._replace(overrides={**c.overrides, ALIGN: None}))
        == _setting(packed[c.row, c.extent]._replace(overrides={
            **packed[c.row, c.extent].overrides, ALIGN: None}))
    }  # fmt: skip
    return [
        Slot(row, extent, size, 1 - extent / size,
             cell.efficiency / packed[row, extent].efficiency, cell.lost)
        for (row, extent, size), cell in compared.items()
    ]  # fmt: skip


def _size(value: Any) -> int:
    return int(parse_quantity(value, "size"))


def _setting(cell: Cell) -> str:
    """All of a cell but its extent."""
    return json.dumps({**cell.overrides, "extent": None}, sort_keys=True)

"""Results of serving, and how those of cells become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwmodel.specs.device import Device
from policies.memory.step_energy import Transfer
from policies.requests.requests import FloatArray, IntArray, Requests
from policies.serving.metrics import Metrics
from policies.serving.node import mean_of, merged
from policies.serving.serving_spec import ServingSpec
from policies.serving.slot_use import Known


@dataclass(frozen=True, eq=False)
class Cell:
    """What serving a cell left behind, of which metrics of several are made."""

    metrics: Metrics
    known: Known
    transfers: Mapping[str, Transfer]
    figures: dict[str, Any]
    """What a cell reports beside its metrics."""


@dataclass(frozen=True, eq=False)
class ServingResult:
    """`metrics` is plain JSON data. Times of each request in seconds, nan where it was dropped."""

    metrics: dict[str, Any]
    arrival_s: FloatArray
    """As the requests have it; in a closed loop when each was sent."""
    first_token_s: FloatArray
    finish_s: FloatArray
    cell: Cell | None = None
    """What the metrics of several cells are made of."""


def rows_of(spec: ServingSpec, requests: Requests, cell: int) -> IntArray:
    """The requests that a cell gets: each in turn, sessions whole."""
    turns = np.where(requests.session >= 0, requests.session, np.arange(len(requests)))
    return np.flatnonzero(turns % spec.cluster.cells == cell)


def merged_cells(
    device: Device, spec: ServingSpec, requests: Requests, seed: int, warmup: int,
    results: Sequence[ServingResult],
) -> ServingResult:  # fmt: skip
    """The result of cells that gave these."""
    outputs = spec.engine.cut(requests.output_tokens)
    cells = [result.cell for result in results if result.cell is not None]
    rows = [rows_of(spec, requests, cell) for cell in range(len(cells))]
    metrics = Metrics(requests, outputs, warmup)
    metrics.merge([(cell.metrics, mine) for cell, mine in zip(cells, rows, strict=True)])
    whole = cells[0].known.allocator
    known = Known(np.zeros(len(requests), np.int64), np.full(len(requests), np.nan), whole)
    for cell, mine in zip(cells, rows, strict=True):
        known.reserved_ever[mine] = cell.known.reserved_ever
        known.run_tokens[mine] = cell.known.run_tokens
    figures = metrics.figures([known], whole)
    reports = [cell.figures for cell in cells]
    served = np.array([cell.metrics.ended for cell in cells])
    for key in ("policy", "memory"):
        figures[key] = mean_of([report[key] for report in reports], served)
    for key in ("dropped", "cut_outputs"):
        figures[key] = sum(report[key] for report in reports)
    figures["node"] = merged([report["node"] for report in reports])
    if "warnings" in reports[0]:
        figures["warnings"] = reports[0]["warnings"]
    figures |= energy_of(device, spec, metrics, cells[0].transfers)
    return ServingResult({**figures, "seed": seed}, *metrics.times())


def energy_of(
    device: Device, spec: ServingSpec, metrics: Metrics, transfers: Mapping[str, Transfer]
) -> dict[str, Any]:
    """Energy of a token, and tokens of a joule, of all cards of a run."""
    cards = spec.tensor_parallel
    energy = metrics.energy(device, transfers, cards)
    rates = metrics.tokens_per_joule(device, energy, cards)
    return {"energy": energy, "tokens_per_joule": rates}

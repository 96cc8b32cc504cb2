"""Results of serving, and how those of cells become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.memory.step_energy import Transfer
from policies.requests.requests import FloatArray, IntArray, Requests
from policies.serving.metrics import Metrics
from policies.serving.node import mean_of, merged
from policies.serving.pool import PoolMetrics
from policies.serving.pool_figures import PoolsRun, figures_of_run, merged_runs
from policies.serving.pool_options import DECODE
from policies.serving.served_stream import first_samples, samples_of
from policies.serving.serving_spec import ServingSpec
from policies.serving.slot_use import Known
from policies.serving.step_figures import energy, tokens_per_joule


@dataclass(frozen=True, eq=False)
class ServedCell:
    """What serving a cell left behind, of which metrics of several are made."""

    metrics: Metrics
    known: Known
    transfers: Mapping[str, Transfer]
    figures: dict[str, Any]
    """What a cell reports beside its metrics."""
    pools: PoolsRun | None = None
    """Of a cell with prefill and decode apart: what its sides did."""
    controllers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What they report, by name; those of pools are in `pools`."""


@dataclass(frozen=True, eq=False)
class ServingResult:
    """`metrics` is plain JSON data. Times of each request in seconds, nan where it was dropped."""

    metrics: dict[str, Any]
    arrival_s: FloatArray
    """As the requests have it; in a closed loop when each was sent."""
    first_token_s: FloatArray
    finish_s: FloatArray
    cell: ServedCell | None = None
    """What the metrics of several cells are made of."""


def rows_of(spec: ServingSpec, requests: Requests, cell: int) -> IntArray:
    """The requests that a cell gets: each in turn, sessions whole."""
    turns = np.where(requests.session >= 0, requests.session, np.arange(len(requests)))
    return np.flatnonzero(turns % spec.cluster.cells == cell)


def merged_cells(
    device: Device, model: TransformerSpec, spec: ServingSpec, requests: Requests, seed: int,
    warmup: int, results: Sequence[ServingResult],
) -> ServingResult:  # fmt: skip
    """The result of cells that gave these."""
    outputs = spec.engine.cut(requests.output_tokens)
    cells = [result.cell for result in results if result.cell is not None]
    rows = [rows_of(spec, requests, cell) for cell in range(len(cells))]
    samples = samples_of(requests)
    first_sample = None
    if samples is not None:
        rows = [np.flatnonzero(np.isin(samples, mine)) for mine in rows]
        outputs, warmup = outputs[samples], int((samples < warmup).sum())
        requests, first_sample = requests.apart(), first_samples(samples)
    metrics = Metrics(requests, outputs, warmup, first_sample)
    if spec.pools is None:
        metrics.requests.steps_late = spec.engine.ahead
    metrics.merge([(cell.metrics, mine) for cell, mine in zip(cells, rows, strict=True)])
    runs = [cell.pools for cell in cells if cell.pools is not None]
    if runs:
        served = np.array([cell.metrics.ended for cell in cells])
        side = PoolMetrics(metrics, requests, first_sample)
        figures = figures_of_run(merged_runs(runs, rows, served, side), DECODE)
        figures |= _counted(cells) | {"energy": None, "tokens_per_joule": {}}
        figures |= for_price(device, spec, figures["output_tokens_per_s"])
        return ServingResult({**figures, "seed": seed}, *metrics.requests.of_requests())
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
    figures |= _counted(cells)
    figures["node"] = merged([report["node"] for report in reports])
    figures["node"] |= {
        name: mean_of([cell.controllers[name] for cell in cells], served)
        for name in cells[0].controllers
    }
    figures |= energy_of(device, spec, metrics, cells[0].transfers)
    figures |= for_price(device, spec, figures["output_tokens_per_s"])
    return ServingResult({**figures, "seed": seed}, *metrics.requests.of_requests())


def _counted(cells: Sequence[ServedCell]) -> dict[str, Any]:
    """What is counted in each cell, and warnings."""
    reports = [cell.figures for cell in cells]
    found = {key: sum(each[key] for each in reports) for key in ("dropped", "cut_outputs")}
    return found | {key: reports[0][key] for key in ("warnings",) if key in reports[0]}


def energy_of(
    device: Device, spec: ServingSpec, metrics: Metrics, transfers: Mapping[str, Transfer]
) -> dict[str, Any]:
    """Energy of a token, and tokens of a joule, of all cards of a run."""
    cards = spec.tensor_parallel
    found = energy(metrics.after, device, transfers, cards)
    rates = tokens_per_joule(metrics.after, device, found, cards)
    return {"energy": found, "tokens_per_joule": rates}


def for_price(device: Device, spec: ServingSpec, output_tokens_per_s: float) -> dict[str, float]:
    """Output tokens a second for 1,000 dollars of cards, for a watt and for a square millimetre,
    and what a card has of these, where they are given."""
    if spec.other_devices:
        return {}
    cards = spec.tensor_parallel * spec.cluster.cards
    if spec.pools is not None:
        halves = spec.pools.prefill, spec.pools.decode
        cards = sum(
            half.replicas * (half.tensor_parallel or spec.tensor_parallel) for half in halves
        )
    cards *= spec.cluster.stages
    each = output_tokens_per_s / cards
    found: dict[str, float] = {}
    if price_usd := device.price_usd:
        found |= {"tokens_per_s_per_kusd": 1000 * each / price_usd, "card_usd": price_usd}
    if watts := device.draw_watts:
        found |= {"tokens_per_s_per_watt": each / watts, "card_watts": watts}
    if mm2 := device.area_mm2:
        found |= {"tokens_per_s_per_mm2": each / mm2, "card_mm2": mm2}
    return found

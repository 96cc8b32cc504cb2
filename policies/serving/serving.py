"""Serving a request stream: requests in, metrics out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.memory.fidelity import Simulate
from policies.requests.requests import Requests
from policies.serving.cards import Cards
from policies.serving.cells import ServingResult, for_price, merged_cells, rows_of
from policies.serving.combinations import unjoined, without_use
from policies.serving.disaggregation import Disaggregation
from policies.serving.metrics import Metrics
from policies.serving.plugin_faults import named
from policies.serving.recorder import Recorder, Watches
from policies.serving.run import Run
from policies.serving.served_stream import stream_of
from policies.serving.serving_spec import ServingSpec
from policies.serving.simulation import Simulation, Watcher
from policies.serving.sources import source_of


def serve(
    device: Device, model: TransformerSpec, spec: ServingSpec, requests: Requests, *, seed: int,
    warmup_requests: int = 0, progress: Callable[[int, int], None] | None = None,
    simulate: Simulate | None = None, recorder: Recorder | None = None,
    profile: Requests | None = None, cells: Sequence[ServingResult] | None = None,
    watchers: Iterable[Watcher] = (),
) -> ServingResult:  # fmt: skip
    """Serve `requests` on `device` until the last has its last token.

    warmup_requests: how many requests at the start do not count.
    progress: called with (ended, all) whenever requests ended.
    simulate: instead of `hwmodel.kernel.memory.simulate_system`, for tests.
    recorder: receives the events of the run and is closed at its end; None costs nothing.
    profile: earlier requests, whose lengths a policy that learns knows from the start.
    cells: of several, what `serve_cell` gave for each of them; None: serve them here.
    watchers: are told what happens, behind those of the run; not that of several cells.
    Raises DescriptionError if the model, or a request, can never fit, or if all is warm-up.
    """
    if spec.cluster.cells > 1:
        if recorder is not None:
            raise DescriptionError(
                f"logs are of one run, and cells are {spec.cluster.cells}, which know nothing of "
                "each other; serve one of them with cluster.cells: 1"
            )
        if cells is None:
            cells = [
                serve_cell(
                    device, model, spec, requests, cell, seed=seed,
                    warmup_requests=warmup_requests, simulate=simulate, profile=profile,
                )
                for cell in range(spec.cluster.cells)
            ]  # fmt: skip
        return merged_cells(device, model, spec, requests, seed, warmup_requests, cells)
    try:
        with named():
            return _serve(
                device, model, spec, requests, seed, warmup_requests, progress, simulate, recorder,
                profile, watchers,
            )  # fmt: skip
    finally:
        if recorder is not None:
            recorder.close()


def serve_cell(
    device: Device, model: TransformerSpec, spec: ServingSpec, requests: Requests, cell: int, *,
    seed: int, warmup_requests: int = 0, simulate: Simulate | None = None,
    profile: Requests | None = None, watchers: Iterable[Watcher] = (),
) -> ServingResult:  # fmt: skip
    """Serve the part of `requests` that one of the cells, from 0, gets; else as `serve`.
    Raises DescriptionError if it gets none."""
    rows = rows_of(spec, requests, cell)
    if not len(rows) or (requests.closed and not np.isnan(requests.think_s[rows[0]])):
        raise DescriptionError(f"cluster.cells: cell {cell} gets no request, or no client")
    return serve(
        device, model, spec.of_cell(cell, seed),
        requests.take(rows), seed=int(np.random.SeedSequence((seed, cell)).generate_state(1)[0]),
        warmup_requests=int((rows < warmup_requests).sum()), simulate=simulate, profile=profile,
        watchers=watchers,
    )  # fmt: skip


def _serve(
    device: Device, model: TransformerSpec, spec: ServingSpec, requests: Requests, seed: int,
    warmup_requests: int, progress: Callable[[int, int], None] | None, simulate: Simulate | None,
    recorder: Recorder | None, profile: Requests | None, watchers: Iterable[Watcher],
) -> ServingResult:  # fmt: skip
    spec = spec.on_device(device, model)
    stream = stream_of(spec, requests, seed, warmup_requests)
    if recorder is not None and stream.first_sample is not None:
        recorder.serving(stream.requests)
    metrics = Metrics(stream.requests, stream.outputs, stream.warmup, stream.first_sample)
    if spec.pools is None:
        metrics.requests.steps_late = spec.engine.ahead
    watches = None if recorder is None else Watches(recorder)
    run = Run(device, model, spec, stream, metrics, seed, simulate, watches, profile)
    served = Cards(run) if spec.pools is None else Disaggregation(run)
    stream.require_counted(served.admitted)
    source = source_of(stream.requests, served.admitted, stream.ready_s)
    Simulation(
        served.nodes, source, metrics, [*served.watchers, *watchers], served.enter, progress,
        recorder,
    ).run()  # fmt: skip
    figures, cell = served.figures()
    figures = {**figures, **for_price(device, spec, figures["output_tokens_per_s"])}
    if unused := [*without_use(spec, model), *unjoined(spec, device)]:
        figures = {**figures, "without_use": unused}
    return ServingResult({**figures, "seed": seed}, *metrics.requests.of_requests(), cell)

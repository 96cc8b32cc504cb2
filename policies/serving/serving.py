"""Serving a request stream on one replica: requests in, metrics out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.link import load_link
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Allocator
from policies.allocators.capabilities import Learns, report_of
from policies.allocators.kv_frames import Placed
from policies.engines.engine_v0 import EngineV0Spec
from policies.engines.host_memory import HostTraffic
from policies.engines.speculating_engine import SpeculatingEngine, acceptance
from policies.memory.fidelity import Simulate
from policies.memory.routing import Routing
from policies.predictors.inference import Inference, infer
from policies.predictors.prediction import Predictions, RepeatedPredictions
from policies.predictors.predictor import predict
from policies.requests.requests import FloatArray, IntArray, Requests
from policies.serving.building import admissible, build_replica
from policies.serving.cells import Cell, ServingResult, energy_of, heaviest, merged, rows_of
from policies.serving.clients import Clients
from policies.serving.cluster import Manager, Node, mean_of
from policies.serving.disaggregation import Pools
from policies.serving.dropping import Dropping
from policies.serving.fleet import Fleet, together
from policies.serving.lending import Lending
from policies.serving.lockstep import Lockstep
from policies.serving.metrics import Known, Metrics
from policies.serving.migration import Migrating
from policies.serving.pool_options import PoolSpec, PoolsSpec
from policies.serving.pool_replica import DECODE, PREFILL, Pool, PoolMetrics, PoolReplica, Side
from policies.serving.recorder import Recorder
from policies.serving.replica import Replica
from policies.serving.serving_spec import ServingSpec, model_of_a_card
from policies.transfers.fabric import Fabric


def serve(
    device: Device, model: TransformerSpec, spec: ServingSpec, requests: Requests, *, seed: int,
    warmup_requests: int = 0, progress: Callable[[int, int], None] | None = None,
    simulate: Simulate | None = None, recorder: Recorder | None = None,
    profile: Requests | None = None, cells: Sequence[ServingResult] | None = None,
) -> ServingResult:  # fmt: skip
    """Serve `requests` on `device` until the last has its last token.

    warmup_requests: how many requests at the start do not count.
    progress: called with (ended, all) whenever requests ended.
    simulate: instead of `hwmodel.kernel.memory.simulate_system`, for tests.
    recorder: receives the events of the run and is closed at its end; None costs nothing.
    profile: earlier requests, whose lengths a policy that learns knows from the start.
    cells: of a fleet of several, what `serve_cell` gave for each of them; None: serve them here.
    Raises DescriptionError if the model, or a request, can never fit, or if all is warm-up.
    """
    fleet = spec.cluster.fleet
    if fleet is not None and fleet.cells > 1:
        _refuse_logs(recorder, spec)
        if cells is None:
            cells = [
                serve_cell(
                    device, model, spec, requests, cell, seed=seed,
                    warmup_requests=warmup_requests, simulate=simulate, profile=profile,
                )
                for cell in range(fleet.cells)
            ]  # fmt: skip
        return merged(device, model, spec, requests, seed, warmup_requests, cells)
    try:
        return _serve(
            device, model, spec, requests, seed, warmup_requests, progress, simulate, recorder,
            profile,
        )  # fmt: skip
    finally:
        if recorder is not None:
            recorder.close()


def serve_cell(
    device: Device, model: TransformerSpec, spec: ServingSpec, requests: Requests, cell: int, *,
    seed: int, warmup_requests: int = 0, simulate: Simulate | None = None,
    profile: Requests | None = None,
) -> ServingResult:  # fmt: skip
    """Serve the part of a fleet's `requests` that one of its cells, from 0, gets; else as `serve`.
    Raises DescriptionError if it gets none."""
    rows = rows_of(spec, requests, cell)
    if not len(rows) or (requests.closed and not np.isnan(requests.think_s[rows[0]])):
        raise DescriptionError(f"fleet.cells: cell {cell} gets no request, or no client")
    return serve(
        device, model, spec.model_copy(update={"cluster": spec.cluster.of_a_cell}),
        requests.take(rows), seed=int(np.random.SeedSequence((seed, cell)).generate_state(1)[0]),
        warmup_requests=int((rows < warmup_requests).sum()), simulate=simulate, profile=profile,
    )  # fmt: skip


class _Stream(NamedTuple):
    """A request stream as engines get it, and as it came where each sample is a request."""

    requests: Requests
    outputs: IntArray
    """Output tokens of each, as the engine cuts them, int64 (n,)."""
    predicted: Predictions
    ready_s: FloatArray
    """When each has arrived and its length is predicted."""
    warmup: int
    """How many at the start do not count."""
    first_sample: IntArray | None
    """Where samples are requests of their own, the first one of each that came."""
    came: Requests
    came_warmup: int
    inference: Inference | None


def _serve(
    device: Device, model: TransformerSpec, spec: ServingSpec, requests: Requests, seed: int,
    warmup_requests: int, progress: Callable[[int, int], None] | None, simulate: Simulate | None,
    recorder: Recorder | None, profile: Requests | None,
) -> ServingResult:  # fmt: skip
    spec = spec.on_device(device, model)
    local = model_of_a_card(spec, model)
    cards = spec.cluster.cards
    _refuse_logs(recorder, spec)
    stream = _stream(spec, requests, seed, warmup_requests)
    requests, ready_s = stream.requests, stream.ready_s
    if recorder is not None and stream.first_sample is not None:
        recorder.serving(requests)
    metrics = Metrics(requests, stream.outputs, stream.warmup, stream.first_sample)
    if spec.pools is not None:
        figures = _serve_pools(
            device, model, spec, spec.pools, stream, metrics, seed, simulate, recorder, progress
        )
        return ServingResult({**figures, "seed": seed}, *metrics.times())
    shared_experts = None
    if spec.expert_parallel != "none" and local.experts is not None:
        shared_experts = Routing(local.experts, spec.routing, seed)

    def make(card: int, life: int = 0) -> Replica:
        key = (seed, card, life) if life else (seed, card) if card else seed
        built = build_replica(
            device, local, spec, requests, stream.predicted, metrics, key, simulate, recorder,
            shared_experts,
        )  # fmt: skip
        if fleet is not None and replicas:
            built.share(replicas[0])
        return built

    fleet, replicas = spec.cluster.fleet, list[Replica]()
    for card in range(cards):
        replicas.append(make(card))
    _teach(spec, [replica.engine.allocator for replica in replicas], profile)
    if isinstance(spec.engine, EngineV0Spec) and spec.engine.swap_dram is not None:
        host = HostTraffic(spec.engine.swap_dram.bandwidth)
        for each in replicas:
            each.share_host(host)
    manager = Manager(spec.cluster, requests, stream.predicted.length)
    node, reach = Node(replicas, manager), None
    if spec.cluster.lending is not None:
        node = Lending(replicas, manager, spec.cluster.lending, local)
        reach = node.reach
    admitted = admissible(spec, replicas[0].engine.allocator, requests, stream.outputs, reach)
    _require_counted(stream, admitted)

    def group(stages: int, placed: Placed | None) -> Replica:
        grouped = spec.model_copy(update={"cluster": spec.cluster.grouped(stages)})
        return build_replica(
            device, local, grouped, requests, stream.predicted, metrics, (seed, cards + stages),
            simulate, placed=placed,
        )  # fmt: skip

    if fleet is not None:
        if shared_experts is not None or stream.first_sample is not None:
            raise DescriptionError(
                "serving.cluster.fleet: not with experts that cards share, nor with engine.like "
                "and several samples a request"
            )
        node = Fleet(replicas, manager, fleet.failures, seed, make)
        if requests.closed:
            node.clients = Clients(admitted, requests)
    elif spec.cluster.dropping is not None:
        node = Dropping(replicas, manager, spec.cluster.dropping, local, group)
    elif spec.cluster.migration is not None:
        node = Migrating(replicas, manager, spec.cluster.migration, local)
    elif shared_experts is not None:
        node = Lockstep(replicas, manager)
    if requests.closed and fleet is None:
        _serve_closed(replicas[0], admitted, requests, recorder, progress)
    elif cards == 1:
        _serve_one(replicas[0], admitted, ready_s[admitted], progress)
    else:
        node.serve(admitted, ready_s[admitted], progress)
    stage = heaviest(local, spec)
    figures = _figures(device, stage, spec, stream, node, metrics, admitted)
    cell = None
    if fleet is not None:
        one = replicas[0].engine
        known = Known(one.reserved_ever, one.run_tokens, one.allocator.layout)
        cell = Cell(metrics, known, replicas[0].memory.transfers(), figures)
        figures = {**figures, "node": together([figures["node"]])}
    return ServingResult({**figures, "seed": seed}, *metrics.times(), cell)


def _serve_pools(
    device: Device, model: TransformerSpec, spec: ServingSpec, pools: PoolsSpec, stream: _Stream,
    metrics: Metrics, seed: int, simulate: Simulate | None, recorder: Recorder | None,
    progress: Callable[[int, int], None] | None,
) -> dict[str, Any]:  # fmt: skip
    """Serve the stream with prefill and decode apart; all metrics of the run."""
    requests, fabric = stream.requests, Fabric()
    if recorder is not None or stream.first_sample is not None:
        what = "logs are" if recorder is not None else "engine.like with several samples is"
        raise DescriptionError(f"serving.pools: {what} not modelled with them")

    def pool(name: str, half: PoolSpec) -> Pool:
        card = device if half.device is None else load_device(half.device)
        own = spec.pooled(half).on_device(card, model)
        local, mine = model_of_a_card(own, model), PoolMetrics(metrics, requests)

        def make(number: int) -> PoolReplica:
            side = Side.of(fabric, (name, number), pools.contention)
            key = (seed, number + 1000 * (name == DECODE))
            replica = build_replica(
                card, local, own, requests, stream.predicted, mine, key if number else seed,
                simulate, side=side,
            )  # fmt: skip
            assert isinstance(replica, PoolReplica)
            return replica

        return Pool(card, local, own.tensor_parallel, make, mine)

    both = pool(PREFILL, pools.prefill), pool(DECODE, pools.decode)
    whole = model.stored_as(spec.weights, spec.kv)
    node = Pools(pools, load_link(pools.link), whole, *both, fabric, requests)
    fitting, other = (
        admissible(spec, each.replicas[0].engine.allocator, requests, stream.outputs)
        for each in both
    )
    admitted: IntArray = np.intersect1d(fitting, other)
    _require_counted(stream, admitted)
    clients = Clients(admitted, requests) if requests.closed else None
    ready = (admitted, stream.ready_s[admitted]) if clients is None else clients.first()
    node.arrive(ready[0].tolist(), ready[1].tolist())
    while metrics.ended < len(admitted):
        node.more = clients is not None and bool(clients.to_send)
        ended, now_s = node.advance()
        for request, sent_s in [] if clients is None else clients.after(ended, now_s):
            metrics.arrival_s[request] = sent_s
            node.arrive([request], [sent_s])
        if ended and progress is not None:
            progress(metrics.ended, len(admitted))
    node.close()
    figures = {**both[1].figures(), **both[1].reports(), "pools": node.figures()}
    figures["dropped"] = len(requests) - len(admitted)
    figures["cut_outputs"] = int((requests.output_tokens > stream.outputs).sum())
    if stream.inference is not None:
        figures["predictor"] = stream.inference.figures(requests.arrival_s, stream.warmup)
    return {**figures, "energy": None, "tokens_per_joule": {}}


def _refuse_logs(recorder: Recorder | None, spec: ServingSpec) -> None:
    cards = spec.cluster.cards
    if recorder is not None and cards > 1 and spec.pools is None:
        raise DescriptionError(f"logs are those of one card; serving.cluster.cards is {cards}")


def _require_counted(stream: _Stream, admitted: IntArray) -> None:
    """Raises DescriptionError if all of the admitted requests are warm-up."""
    if stream.warmup and stream.warmup >= len(admitted):
        raise DescriptionError(
            f"a warm-up of {stream.came_warmup} requests leaves none of {len(admitted)} to be"
            " counted"
        )


def _stream(spec: ServingSpec, requests: Requests, seed: int, warmup: int) -> _Stream:
    """The stream with its predictions. Raises DescriptionError for what cannot be served so."""
    outputs = spec.engine.cut(requests.output_tokens)
    single = spec.pools is not None or spec.cluster.fleet is not None
    cards = 1 if single else spec.cluster.cards
    cost = spec.predictor.inference
    apart = spec.samples_apart and bool((requests.samples > 1).any())
    if requests.closed and (cards > 1 or cost is not None or apart):
        what = "a free predictor and samples that are not requests of their own"
        if cards > 1:
            what = f"one card, or serving.cluster.fleet; serving.cluster.cards is {cards}"
        raise DescriptionError(f"closed arrivals and sessions need {what}")
    if ((requests.context >= 0) & (outputs < requests.output_tokens)).any():
        longest = int(requests.output_tokens.max())
        raise DescriptionError(
            "serving.engine.max_tokens cuts answers that later turns go on from; expected at least "
            f"{longest} tokens, or shorter ones from the workload (lengths.sessions)"
        )
    predicted = predict(spec.predictor, outputs, seed)
    inference = None if cost is None else infer(cost, requests.arrival_s)
    ready_s = requests.arrival_s if inference is None else inference.ready_s
    if not apart:
        return _Stream(
            requests, outputs, predicted, ready_s, warmup, None, requests, warmup, inference
        )
    rows = np.repeat(np.arange(len(requests)), requests.samples)
    repeated = RepeatedPredictions(predicted, rows)
    first_sample = np.searchsorted(rows, np.arange(len(requests)))
    return _Stream(
        requests.apart(), outputs[rows], repeated, ready_s[rows], int((rows < warmup).sum()),
        first_sample, requests, warmup, inference,
    )  # fmt: skip


def _teach(spec: ServingSpec, allocators: list[Allocator], profile: Requests | None) -> None:
    """Policies that learn know the lengths of `profile`, and with shared bounds learn together."""
    learners = [each for each in allocators if isinstance(each, Learns)]
    if profile is not None:
        for learner in learners:
            learner.profile(profile.prompt_tokens, spec.engine.cut(profile.output_tokens))
    if spec.cluster.bounds == "shared":
        for learner in learners[1:]:
            learner.share_bounds(learners[0])


def _figures(
    device: Device, local: TransformerSpec, spec: ServingSpec, stream: _Stream, node: Node,
    metrics: Metrics, admitted: IntArray,
) -> dict[str, Any]:  # fmt: skip
    """All metrics of a run, those of several cards as of one."""
    replicas, outputs = node.own, stream.came.output_tokens
    allocators = [replica.engine.allocator for replica in replicas]
    built = [replica.engine for replica in node.built]
    figures = metrics.figures(built, local, allocators[0].layout)
    dropped = np.isin(np.arange(len(stream.requests)), admitted, invert=True)
    if stream.first_sample is not None:
        dropped = dropped[stream.first_sample]
    figures["dropped"] = int(dropped.sum())
    figures["cut_outputs"] = int((outputs > (spec.engine.max_tokens or np.inf)).sum())
    moved = metrics.moved_bytes(local)
    if len(replicas) == 1:
        figures["policy"] = report_of(allocators[0])
        figures["memory"] = replicas[0].memory.report(moved)
        figures |= replicas[0].figures()
    else:
        served = np.bincount(node.manager.card_of[admitted], minlength=len(replicas))
        reports = [replica.memory.report(moved // len(replicas)) for replica in replicas]
        figures["policy"] = mean_of([report_of(each) for each in allocators], served)
        figures["memory"] = mean_of(reports, served)
        figures |= mean_of([replica.figures() for replica in replicas], served)
        figures["node"] = node.report(stream.outputs)
    if isinstance(replicas[0].engine, SpeculatingEngine):
        figures["speculation"] = acceptance(each.engine for each in replicas)
    if replicas[0].moves is not None:
        figures["moves"] = replicas[0].moves.figures()
    if stream.inference is not None:
        figures["predictor"] = stream.inference.figures(stream.came.arrival_s, stream.came_warmup)
    if replicas[0].pipeline is not None:
        figures["pipeline"] = replicas[0].pipeline.figures()
    figures |= energy_of(device, local, spec, metrics, replicas[0].memory.transfers())
    return figures


def _serve_one(
    replica: Replica,
    admitted: IntArray,
    ready_s: FloatArray,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Serve all requests on one card, whose arrivals are known."""
    replica.arrive(admitted.tolist(), ready_s.tolist())
    metrics = replica.metrics
    while metrics.ended < len(admitted):
        if replica.advance() and progress is not None:
            progress(metrics.ended, len(admitted))


def _serve_closed(
    replica: Replica,
    admitted: IntArray,
    requests: Requests,
    recorder: Recorder | None,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Serve all requests on one card; see `Clients`."""
    metrics, clients = replica.metrics, Clients(admitted, requests)
    first, begins_s = clients.first()
    replica.arrive(first.tolist(), begins_s.tolist())
    sessions = bool((requests.session >= 0).any())
    while metrics.ended < len(admitted):
        replica.more = bool(clients.to_send)
        if sessions:
            replica.lasts_s = np.inf if clients.to_send else float(begins_s.max(initial=0.0))
        ended = replica.advance()
        for request, sent_s in clients.after(ended, replica.now_s):
            metrics.arrival_s[request] = sent_s
            replica.arrive([request], [sent_s])
            if recorder is not None:
                recorder.sent(sent_s, request)
        if ended and progress is not None:
            progress(metrics.ended, len(admitted))

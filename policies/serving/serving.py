"""Serving a request stream on one replica: requests in, metrics out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from hwmodel.description.description import DescriptionError, Strict
from hwmodel.description.units import Bytes
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.kv_order import KvOrder
from hwmodel.specs.link import load_link
from hwmodel.specs.mlp import Exchange, ExpertPlacement
from hwmodel.specs.number_format import KvFormat, WeightFormat
from hwmodel.specs.stages import stages_of
from hwmodel.specs.transformer import TransformerSpec, load_model, shard
from policies.allocators.allocator import Allocator, Limits
from policies.allocators.attention_options import DENSE, AttentionSpec
from policies.allocators.capabilities import Learns, report_of
from policies.allocators.hybrid import Unified
from policies.allocators.kv_groups import kv_groups
from policies.allocators.kv_layout import KvLayout, kv_layout
from policies.allocators.paged import PagedOptions
from policies.allocators.registry import PolicySpec, build
from policies.engines.engine import Engine, EngineOptions
from policies.engines.engine_v0 import PAGED_V0, EngineV0Spec
from policies.engines.engine_v1 import EngineV1Spec
from policies.engines.generations import ENGINES, EngineChoice
from policies.engines.hosting_engine import HostingEngine
from policies.engines.speculating_engine import SpeculatingEngine, acceptance
from policies.engines.speculation import SpeculationSpec, draw
from policies.engines.vllm_version import VERSIONS
from policies.memory.drafting import Drafter, DraftingSteps, drafter_of
from policies.memory.fidelity import FidelitySpec, Simulate
from policies.memory.memory_model import memory_model
from policies.memory.pipeline import PipelineSpec, PipelineSteps
from policies.memory.routing import Routing, RoutingSpec
from policies.memory.step import Free, StepModel
from policies.predictors.inference import Inference, infer
from policies.predictors.prediction import Predictions, RepeatedPredictions
from policies.predictors.predictor import ChosenPredictor, PredictorSpec, predict
from policies.requests.requests import FloatArray, IntArray, Requests
from policies.serving.activations import peak_activation_bytes
from policies.serving.cluster import ClusterSpec, Lockstep, Manager, Node, mean_of
from policies.serving.disaggregation import Pools
from policies.serving.dropping import Dropping
from policies.serving.metrics import Metrics
from policies.serving.migration import Migrating
from policies.serving.pool_options import PoolSpec, PoolsSpec
from policies.serving.pool_replica import DECODE, PREFILL, Pool, PoolMetrics, PoolReplica, Side
from policies.serving.recorder import Recorder
from policies.serving.replica import Replica
from policies.transfers.fabric import Fabric
from policies.transfers.moves import Moves, MovesSpec
from policies.transfers.offloading_engine import OffloadingEngine
from policies.transfers.tier_options import TiersSpec
from policies.transfers.tiers import Tiers

__all__ = ["ServingResult", "ServingSpec", "load_model", "serve"]


class ServingSpec(Strict):
    """How requests are served."""

    model: str
    """A shipped model, or the path of one (resolved by the caller with `load_model`)."""
    policy: PolicySpec = PagedOptions()
    engine: EngineChoice = EngineV1Spec()
    """With v0, `paged` has its defaults of that time (`policies.engines.engine_v0.PAGED_V0`); with
    v1 and `like`, those of that version (`policies.engines.vllm_version`)."""
    predictor: ChosenPredictor = PredictorSpec()
    memory: FidelitySpec = FidelitySpec()
    kv_layout: KvOrder | None = None
    """None: the one that the policy's authors describe, else that of the card's software
    (`paging.kv_layout` of the accelerator)."""
    attention: AttentionSpec = DENSE
    """What decoding reads of the KV, and what of it is kept."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of the capacity for weights, activations and KV (vLLM's default)."""
    activation_bytes: Bytes | None = None
    """Memory of each card kept for activations. None: the peak of the largest step, see
    `policies.serving.activations`."""
    kv_tokens: Annotated[int, Field(ge=1)] | None = None
    """Token slots of the KV cache, as a server logs them. None: what `gpu_memory_utilization`
    leaves."""
    weights: WeightFormat | None = None
    """Format of the weights. None: the model's. See `hwmodel.specs.accelerator.Compute.peak` for
    what the device computes in."""
    kv: KvFormat | None = None
    """Format of the KV; attention converts it to the type of the activations. None: the
    model's."""
    routing: RoutingSpec = RoutingSpec()
    """How tokens choose the experts of a model that has them."""
    cluster: ClusterSpec = ClusterSpec()
    tensor_parallel: Annotated[int, Field(ge=1)] = 1
    """Cards that the replica spans."""
    expert_parallel: ExpertPlacement = "none"
    """Whole experts on each card of a replica, or of all of `cluster.cards` replicas, and how they
    are placed; none: each expert is split."""
    expert_exchange: Exchange = "all_reduce"
    """With `expert_parallel`."""
    moves: MovesSpec | None = None
    """What moving each request's KV would take once its prompt is computed; the run does not wait
    for it. None: nothing is counted."""
    tiers: TiersSpec | None = None
    """Memories below the device's, which keep KV that it loses (docs/offload.md). None: none."""
    pools: PoolsSpec | None = None
    """Replicas that prefill, and others that decode (docs/pools.md), of `cluster.cards` in all, or
    1. None: each does both."""
    speculation: SpeculationSpec | None = None
    """Drafts that each step verifies (docs/speculation.md). None: none."""
    free: list[Free] = []
    """What takes no time: the reading of the weights, all FLOPs, copies of KV within the memory.
    Counterfactuals, not realisable; all else stays, capacity included."""
    advance_together: bool = True
    """False: one step at a time, for tests; the results are the same but for a node's (see
    docs/cluster.md)."""

    @model_validator(mode="before")
    @classmethod
    def completed(cls, data: Any) -> Any:
        """`data` with what `paged` is under its engine filled in, so that the description says
        it."""
        if not isinstance(data, dict):
            return data
        engine, policy = data.get("engine"), data.get("policy", {"name": "paged"})
        if isinstance(engine, EngineOptions):
            engine = {"name": engine.name, "like": getattr(engine, "like", None)}
        if not isinstance(engine, dict) or not isinstance(policy, dict):
            return data
        own = PAGED_V0 if engine.get("name") == "v0" else {}
        if engine.get("name", "v1") == "v1" and engine.get("like") in VERSIONS:
            own = VERSIONS[engine["like"]].paged
        if own and policy.get("name") == "paged":
            return {**data, "policy": {**own, **policy}}
        return data

    @model_validator(mode="after")
    def _tiers_of_a_card(self) -> ServingSpec:
        if self.tiers is not None and (self.engine.name != "v1" or self.cluster.cards > 1):
            raise ValueError("tiers: needs engine v1, and cluster.cards 1")
        if self.cluster.stages > 1 and (self.tiers is not None or self.expert_parallel != "none"):
            raise ValueError("cluster.stages: not with tiers or expert_parallel")
        if self.cluster.moves and (self.engine.name != "v1" or self.expert_parallel != "none"):
            raise ValueError(
                "cluster.dropping, cluster.migration: need engine v1, and no expert_parallel"
            )
        if self.cluster.dropping is not None and self.kv_tokens is not None:
            raise ValueError("cluster.dropping: frees bytes, not with kv_tokens")
        return self

    @model_validator(mode="after")
    def _pools_alone(self) -> ServingSpec:
        if self.pools is None:
            return self
        for name in ("tiers", "moves", "speculation"):
            if getattr(self, name) is not None:
                raise ValueError(f"pools: not with {name}")
        if self.cluster.stages > 1 or self.cluster.moves:
            raise ValueError("pools: not with cluster.stages, .dropping or .migration")
        many, cards = self.pools.prefill.replicas + self.pools.decode.replicas, self.cluster.cards
        if cards not in (1, many):
            raise ValueError(f"pools: has {many} replicas; expected cluster.cards 1 or {many}")
        for half in (self.pools.prefill, self.pools.decode):
            if self.pooled(half).engine.name != "v1":
                raise ValueError("pools: needs engine v1")
        return self

    @property
    def other_devices(self) -> dict[str, str]:
        """Devices of pools that are not the run's, by pool."""
        if self.pools is None:
            return {}
        halves = {PREFILL: self.pools.prefill, DECODE: self.pools.decode}
        return {key: half.device for key, half in halves.items() if half.device is not None}

    def pooled(self, pool: PoolSpec) -> ServingSpec:
        """The description of a replica of a pool."""
        own = pool.model_dump(exclude={"replicas", "device"}, exclude_none=True)
        given = {name: getattr(pool, name) for name in own}
        return self.model_copy(update={**given, "pools": None, "cluster": ClusterSpec()})

    @model_validator(mode="after")
    def _drafts_on_v1(self) -> ServingSpec:
        apart = self.tiers is not None or self.expert_parallel != "none"
        apart |= self.cluster.stages > 1 or self.cluster.moves
        if self.speculation is not None and (self.engine.name != "v1" or apart):
            raise ValueError(
                "speculation: needs engine v1 and expert_parallel none, without tiers, "
                "cluster.stages, cluster.dropping or cluster.migration"
            )
        return self

    def on_device(self, device: Device, model: TransformerSpec) -> ServingSpec:
        """The description with what engine and policy take from the device."""
        longest = model.max_position
        engine = self.engine.on_device(device.capacity_bytes, device.name, longest)
        policy = self.policy.on_device(device.paging)
        if model.state is not None and (pages := _pages(self, model_of_a_card(self, model))):
            plain = {"prefix_caching": False, "cached_recompute": False}
            policy = policy.model_copy(update={"block": pages.block, **plain})
        return self.model_copy(update={"engine": engine, "policy": policy})

    @model_validator(mode="after")
    def _copies_what_is_computed(self) -> ServingSpec:
        if self.policy.copies_prefixes and self.engine.name == "v0":
            raise ValueError(
                "policy.prefixes: copy needs engine v1; v0 stores a prompt before it is computed"
            )
        return self

    @model_validator(mode="after")
    def _exchanges_with_whole_experts(self) -> ServingSpec:
        if self.expert_exchange != "all_reduce" and self.expert_parallel == "none":
            raise ValueError("expert_exchange: needs expert_parallel, linear or balanced")
        if self.cluster.cards > 1 < self.tensor_parallel and self.expert_parallel != "none":
            raise ValueError(
                "expert_parallel: over several replicas (cluster.cards) needs tensor_parallel 1; "
                f"got {self.tensor_parallel}"
            )
        return self

    @property
    def samples_apart(self) -> bool:
        """Whether each sample is a request of its own, as the policy has it under engine v1."""
        if not isinstance(self.engine, EngineV1Spec):
            return False
        if self.policy.samples == "as_engine":
            return self.engine.like is not None
        return self.policy.samples == "apart"


@dataclass(frozen=True, eq=False)
class ServingResult:
    """`metrics` is plain JSON data. Times of each request in seconds, nan where it was dropped."""

    metrics: dict[str, Any]
    arrival_s: FloatArray
    """As the requests have it; in a closed loop when each was sent."""
    first_token_s: FloatArray
    finish_s: FloatArray


def serve(
    device: Device, model: TransformerSpec, spec: ServingSpec, requests: Requests, *, seed: int,
    warmup_requests: int = 0, progress: Callable[[int, int], None] | None = None,
    simulate: Simulate | None = None, recorder: Recorder | None = None,
    profile: Requests | None = None,
) -> ServingResult:  # fmt: skip
    """Serve `requests` on `device` until the last has its last token.

    warmup_requests: how many requests at the start do not count.
    progress: called with (ended, all) whenever requests ended.
    simulate: instead of `hwmodel.kernel.memory.simulate_system`, for tests.
    recorder: receives the events of the run and is closed at its end; None costs nothing.
    profile: earlier requests, whose lengths a policy that learns knows from the start.
    Raises DescriptionError if the model, or a request, can never fit, or if all is warm-up.
    """
    try:
        return _serve(
            device, model, spec, requests, seed, warmup_requests, progress, simulate, recorder,
            profile,
        )  # fmt: skip
    finally:
        if recorder is not None:
            recorder.close()


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
    if recorder is not None and cards > 1 and spec.pools is None:
        raise DescriptionError(f"logs are those of one card; serving.cluster.cards is {cards}")
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
    replicas = [
        build_replica(
            device, local, spec, requests, stream.predicted, metrics,
            (seed, card) if card else seed, simulate, recorder, shared_experts,
        )
        for card in range(cards)
    ]  # fmt: skip
    _teach(spec, [replica.engine.allocator for replica in replicas], profile)
    admitted = admissible(spec, replicas[0].engine.allocator, requests, stream.outputs)
    _require_counted(stream, admitted)

    def group(stages: int) -> Replica:
        grouped = spec.model_copy(update={"cluster": spec.cluster.grouped(stages)})
        return build_replica(
            device, local, grouped, requests, stream.predicted, metrics, (seed, cards + stages),
            simulate,
        )  # fmt: skip

    manager = Manager(spec.cluster, requests, stream.predicted.length)
    node = Node(replicas, manager)
    if spec.cluster.dropping is not None:
        node = Dropping(replicas, manager, spec.cluster.dropping, local, group)
    elif spec.cluster.migration is not None:
        node = Migrating(replicas, manager, spec.cluster.migration, local)
    elif shared_experts is not None:
        node = Lockstep(replicas, manager)
    if requests.closed:
        _serve_closed(replicas[0], admitted, requests, recorder, progress)
    elif cards == 1:
        _serve_one(replicas[0], admitted, ready_s[admitted], progress)
    else:
        node.serve(admitted, ready_s[admitted], progress)
    stage = max(stages_of(local, spec.cluster.stages), key=lambda each: each.weight_bytes)
    figures = _figures(device, stage, spec, stream, node, metrics, admitted)
    return ServingResult({**figures, "seed": seed}, *metrics.times())


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

    if model.state is not None:
        raise DescriptionError(f"serving.pools: the states of {model.name} are not moved")

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
    cards = spec.cluster.cards if spec.pools is None else 1
    cost = spec.predictor.inference
    apart = spec.samples_apart and bool((requests.samples > 1).any())
    if requests.closed and (cards > 1 or cost is not None or apart):
        what = "a free predictor and samples that are not requests of their own"
        what = f"one card; serving.cluster.cards is {cards}" if cards > 1 else what
        raise DescriptionError(f"closed arrivals and sessions need {what}")
    if ((requests.session >= 0) & (outputs < requests.output_tokens)).any():
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
    if allocators[0].unshared and stream.requests.shares:
        figures["warnings"] = [
            f"{spec.policy.name} on {local.name} finds nothing that prompts repeat: "
            f"{allocators[0].unshared}"
        ]
    if len(replicas) == 1:
        figures["policy"] = report_of(allocators[0])
        figures["memory"] = replicas[0].memory.report(moved)
    else:
        served = np.bincount(node.manager.card_of[admitted], minlength=len(replicas))
        reports = [replica.memory.report(moved // len(replicas)) for replica in replicas]
        figures["policy"] = mean_of([report_of(each) for each in allocators], served)
        figures["memory"] = mean_of(reports, served)
        figures["node"] = node.report(stream.outputs)
    if isinstance(replicas[0].engine, SpeculatingEngine):
        figures["speculation"] = acceptance(each.engine for each in replicas)
    if replicas[0].moves is not None:
        figures["moves"] = replicas[0].moves.figures()
    if isinstance(replicas[0].tiers, Tiers):
        figures["tiers"] = replicas[0].tiers.figures()
    if stream.inference is not None:
        figures["predictor"] = stream.inference.figures(stream.came.arrival_s, stream.came_warmup)
    if replicas[0].pipeline is not None:
        figures["pipeline"] = replicas[0].pipeline.figures()
    transfers = replicas[0].memory.transfers()
    cards = spec.tensor_parallel * spec.cluster.stages
    figures["energy"] = metrics.energy(device, local, transfers, cards)
    figures["tokens_per_joule"] = metrics.tokens_per_joule(device, figures["energy"], cards)
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


class Clients:
    """Who sends what in a closed loop: the next turn of a session after its last one, and others by
    the client that was answered last. `to_send`: requests that no client has taken."""

    def __init__(self, admitted: IntArray, requests: Requests) -> None:
        self._think_s, self._requests = requests.think_s, requests
        self._clients = int(np.isnan(requests.think_s).sum())
        before = requests.take(admitted).turn_before
        later = before >= 0
        pairs = zip(admitted[before[later]].tolist(), admitted[later].tolist(), strict=True)
        self._following, self._firsts = dict(pairs), admitted[~later]
        self.to_send = deque(self._firsts[self._clients :].tolist())

    def first(self) -> tuple[IntArray, FloatArray]:
        """What clients send first, and when."""
        chosen = self._firsts[: self._clients]
        return chosen, self._requests.arrival_s[chosen]

    def after(self, ended: list[int], now_s: float) -> Iterator[tuple[int, float]]:
        """What they send, and when, as these end."""
        for done in ended:
            request = self._following.get(done, -1)
            if request < 0:
                if not self.to_send:
                    continue
                request = self.to_send.popleft()
            yield request, now_s + float(self._think_s[request])


def model_of_a_card(spec: ServingSpec, model: TransformerSpec) -> TransformerSpec:
    """The shard of the model on each card of a replica, in the formats it is served in, with the
    windows of its `attention`. Raises DescriptionError if it cannot be split, or stored so."""
    local = shard(
        model.stored_as(spec.weights, spec.kv),
        spec.tensor_parallel,
        spec.expert_parallel,
        spec.expert_exchange,
        spec.cluster.cards if spec.expert_parallel != "none" else 1,
    )
    return spec.attention.served(local)


def activation_bytes(spec: ServingSpec, local: TransformerSpec) -> int:
    """Memory that each card keeps for activations; `local` is its shard of the model."""
    if spec.activation_bytes is not None:
        return spec.activation_bytes
    engine = spec.engine
    longest = min(engine.max_model_len or local.max_position, local.max_position)
    tokens = engine.token_budget(longest)
    drafts = 0 if spec.speculation is None else spec.speculation.tokens
    return peak_activation_bytes(local, spec.tensor_parallel, tokens, engine.sequence_cap, drafts)


def kv_region(
    device: Device, local: TransformerSpec, spec: ServingSpec, seed: int | tuple[int, ...] = 0
) -> KvLayout:
    """Where the KV of a card lies: what weights, activations, the predictor and the share that is
    kept free leave. `local` is its shard of the model. Raises DescriptionError if nothing is left.
    """
    order = spec.kv_layout or spec.policy.kv_layout or device.paging.kv_layout
    kept = spec.predictor.on_card_bytes + activation_bytes(spec, local)
    groups = kv_groups(local, spec.policy.kv_of_windows)
    drafter, beside_bytes = _drafter(spec, local), 0
    if drafter is not None:
        kept, beside_bytes = kept + drafter.weight_bytes, drafter.model.kv_token_bytes
    if (pages := _pages(spec, local)) is not None:  # missing layers of a group
        beside_bytes = (pages.group - local.kv_layers) * local.kv_layer_bytes
    return kv_layout(
        device, local, spec.gpu_memory_utilization, order, kept, spec.kv_tokens, groups,
        spec.attention.sparse(local, seed), beside_bytes,
    )  # fmt: skip


def _pages(spec: ServingSpec, local: TransformerSpec) -> Unified | None:
    """vLLM's pages of a model with states, in which no prefix is found (its mode `none`)."""
    paged = local.state is not None and isinstance(spec.policy, PagedOptions)
    return Unified(local) if paged else None


def _drafter(spec: ServingSpec, local: TransformerSpec) -> Drafter | None:
    """That of a card, where there is one."""
    if spec.speculation is None:
        return None
    return drafter_of(spec.speculation, local, spec.tensor_parallel)


def build_replica(
    device: Device, local: TransformerSpec, spec: ServingSpec, requests: Requests,
    predicted: Predictions, metrics: Metrics, seed: int | tuple[int, ...],
    simulate: Simulate | None = None, recorder: Recorder | None = None,
    routing: Routing | None = None, side: Side | None = None,
) -> Replica:  # fmt: skip
    """A replica for any of `requests`, with its memory empty.

    local: the shard on each of its cards (see `model_of_a_card`). routing: where replicas have the
    experts in common; None: its own.
    predicted: of all requests. metrics: collects what the replica does. side: of pools.
    Raises DescriptionError if the model does not fit or the device lacks what the spec needs.
    """
    stages = stages_of(local, spec.cluster.stages)
    regions = [kv_region(device, stage, spec, seed) for stage in stages]
    layout = min(regions, key=lambda region: region.slots)
    local, state_bytes = stages[regions.index(layout)], local.activation_bytes
    _require_modelled(local, spec, layout, requests)
    _require_host(device, spec.engine)
    engine_spec = spec.engine.times(len(stages))
    outputs, longest = metrics.output, spec.engine.max_model_len or local.max_position
    longest = min(longest, local.max_position)
    limits = Limits(
        int(spec.engine.max_tokens or outputs.max(initial=1)),
        longest,
        engine_spec.token_budget(longest),
        spec.engine.ahead,
    )
    if (speculation := spec.speculation) is not None:
        version = getattr(spec.engine, "like", None)
        limits = limits._replace(lookahead=speculation.slots(spec.engine.ahead, version))
    if local.state is not None:
        pages = _pages(spec, local)
        slots = -(-local.state_bytes() // layout.token_bytes)
        limits = limits._replace(states=pages.groups[1] * pages.block if pages else slots)
    allocator = build(layout, len(requests), limits, spec.policy)
    if routing is None and local.experts is not None:
        routing = Routing(local.experts, spec.routing, seed)
    each = [StepModel(
        device, stage, spec.tensor_parallel, spec.policy.kernel_cost, routing, spec.free,
        spec.memory.phases == "together", layout.groups, layout.sparse,
        even=bool(spec.memory.efficiency or spec.memory.attention),
    ) for stage in stages]  # fmt: skip
    steps: StepModel | PipelineSteps | DraftingSteps = each[0]
    if len(stages) > 1:
        assert device.accelerator is not None
        pipeline = spec.cluster.pipeline or PipelineSpec()
        steps = PipelineSteps(
            pipeline, each, allocator, metrics.arrival_s, device.accelerator.link, state_bytes,
            spec.tensor_parallel,
        )  # fmt: skip
    memory = memory_model(spec.memory, device, local, layout, seed, simulate, routing, allocator)
    engine: Engine
    if side is not None and isinstance(spec.engine, EngineV1Spec):
        mine = side.engine(spec.engine, allocator, requests, outputs, predicted)
        return PoolReplica(
            mine, each[0], memory, metrics, side.port(each[0]), spec.advance_together
        )
    tiers = None
    if spec.tiers is not None and isinstance(spec.engine, EngineV1Spec):
        tiers = Tiers(spec.tiers, device, local, allocator, each[0], spec.tensor_parallel)
        engine = OffloadingEngine(
            spec.engine, allocator, requests, outputs, predicted, tiers, spec.tiers.layerwise
        )
    elif speculation is not None and isinstance(spec.engine, EngineV1Spec):
        drawn = draw(speculation, outputs, seed if isinstance(seed, int) else seed[0])
        engine = SpeculatingEngine(
            spec.engine, allocator, requests, outputs, predicted, speculation, drawn
        )
        if (drafter := _drafter(spec, local)) is not None:
            passes = StepModel(device, drafter.model, spec.tensor_parallel, free=spec.free)
            steps = DraftingSteps(each[0], passes, speculation.tokens, device)
    else:
        kind = HostingEngine if spec.cluster.moves else ENGINES[spec.engine.name].engine
        engine = kind(engine_spec, allocator, requests, outputs, predicted)
    moves = None if spec.moves is None else Moves(spec.moves, local, layout)
    return Replica(engine, steps, memory, metrics, spec.advance_together, recorder, moves, tiers)


_STATES = ("paged", "static", "odma", "odma-best", "s3", "oracle", "orca")
"""Policies that have a place for states."""


def _require_modelled(
    local: TransformerSpec, spec: ServingSpec, layout: KvLayout, requests: Requests
) -> None:
    several = requests.samples.max(initial=1) > 1
    others = spec.tiers or spec.moves or spec.speculation or spec.policy.copies_prefixes
    others = others or spec.cluster.moves
    plain = spec.engine.name == "v1" and not several and not others
    if local.state is not None and not (plain and spec.policy.name in _STATES):
        raise DescriptionError(
            f"{local.name} has {local.state.kind} layers, whose states runs allocate with engine "
            f"v1, one sample a request and {', '.join(_STATES)}, without tiers, moves, speculation "
            "or copied prefixes"
        )
    if (pages := _pages(spec, local)) is not None and pages.groups[0] > 1:
        raise DescriptionError(
            f"{local.name} has {pages.groups[0]} groups of layers with KV; runs allocate one"
        )
    if spec.cluster.stages > 1 and (layout.sparse is not None or layout.groups or several):
        raise DescriptionError(
            "cluster.stages: not modelled with sparse attention, sliding windows, or requests with "
            "several samples (engine.like makes a request of each)"
        )
    if layout.sparse is not None and several:
        raise DescriptionError(
            f"attention {spec.attention.name}, and requests with several samples; which tokens "
            "each of them chooses is not modelled, except with engine.like, which makes a request "
            "of each"
        )
    if layout.groups is not None and several:
        raise DescriptionError(
            f"{local.name} has sliding windows, and requests with several samples; what those "
            "share of a window is not modelled, except with engine.like, which makes a request of "
            "each"
        )
    if layout.groups is not None and spec.policy.copies_prefixes:
        raise DescriptionError(
            f"{local.name} has sliding windows, whose prefixes are not copied; prefixes: recompute"
        )


def _require_host(device: Device, engine: EngineOptions) -> None:
    swaps = isinstance(engine, EngineV0Spec) and engine.preemption != "recompute"
    if swaps and device.accelerator is not None and device.accelerator.host is None:
        raise DescriptionError(
            f"{device.name} has no host.bandwidth, which swapping needs; give it, or set "
            "engine.preemption: recompute"
        )


def admissible(
    spec: ServingSpec, allocator: Allocator, requests: Requests, output: IntArray
) -> IntArray:
    """Indices of the requests that can finish.

    Raises DescriptionError for the others, unless they are to be dropped.
    """
    prompt, samples, limits = requests.prompt_tokens, requests.samples, allocator.limits
    wanted = allocator.needs(prompt, output, samples)
    long = prompt + output > limits.max_model_len
    wide = samples > spec.engine.sequence_cap
    bad = long | wide | (wanted > allocator.reach)
    if bad.any() and spec.engine.too_long == "error":
        worst = int(np.flatnonzero(bad)[0])
        size = f"request {worst} ({prompt[worst]} prompt + {output[worst]} output tokens)"
        count = (
            f"{int(bad.sum())} of {len(bad)} requests can never be served, the first is {size}: "
        )
        if long[worst]:
            why = f"longer than max_model_len, {limits.max_model_len} tokens"
        elif wide[worst]:
            why = f"{samples[worst]} samples are more than max_num_seqs, {spec.engine.sequence_cap}"
        else:
            why = (
                f"policy {spec.policy.name} may need {wanted[worst]} token slots for it, and can "
                f"give one request {allocator.reach} of the device's {allocator.slots}"
            )
        raise DescriptionError(count + why + "; shorten them or set serving.engine.too_long: drop")
    return np.flatnonzero(~bad)

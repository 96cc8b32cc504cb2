"""Serving a request stream on one replica: requests in, metrics out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from hwmodel.description.description import DescriptionError, Strict
from hwmodel.description.units import Bytes
from hwmodel.specs.device import Device
from hwmodel.specs.kv_order import KvOrder
from hwmodel.specs.mlp import Exchange, ExpertPlacement
from hwmodel.specs.number_format import KvFormat, WeightFormat
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
from policies.engines.speculating_engine import SpeculatingEngine, acceptance
from policies.engines.speculation import SpeculationSpec, draw
from policies.engines.vllm_version import VERSIONS
from policies.memory.drafting import Drafter, DraftingSteps, drafter_of
from policies.memory.fidelity import FidelitySpec, Simulate
from policies.memory.memory_model import memory_model
from policies.memory.routing import Routing, RoutingSpec
from policies.memory.step import Free, StepModel
from policies.predictors.inference import Inference, infer
from policies.predictors.prediction import Predictions, RepeatedPredictions
from policies.predictors.predictor import PredictorSpec, predict
from policies.requests.requests import FloatArray, IntArray, Requests
from policies.serving.activations import peak_activation_bytes
from policies.serving.cluster import ClusterSpec, Lockstep, Manager, Node, mean_of
from policies.serving.metrics import Metrics
from policies.serving.recorder import Recorder
from policies.serving.replica import Replica
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
    predictor: PredictorSpec = PredictorSpec()
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
        return self

    @model_validator(mode="after")
    def _drafts_on_v1(self) -> ServingSpec:
        apart = self.tiers is not None or self.expert_parallel != "none"
        if self.speculation is not None and (self.engine.name != "v1" or apart):
            raise ValueError("speculation: needs engine v1, no tiers, and expert_parallel none")
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
    if recorder is not None and cards > 1:
        raise DescriptionError(f"logs are those of one card; serving.cluster.cards is {cards}")
    stream = _stream(spec, requests, seed, warmup_requests)
    requests, ready_s = stream.requests, stream.ready_s
    if recorder is not None and stream.first_sample is not None:
        recorder.serving(requests)
    metrics = Metrics(requests, stream.outputs, stream.warmup, stream.first_sample)
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
    if stream.warmup and stream.warmup >= len(admitted):
        raise DescriptionError(
            f"a warm-up of {warmup_requests} requests leaves none of {len(admitted)} to be counted"
        )
    kind = Node if shared_experts is None else Lockstep
    node = kind(replicas, Manager(spec.cluster, requests, stream.predicted.length))
    if requests.closed:
        _serve_closed(replicas[0], admitted, requests, recorder, progress)
    elif cards == 1:
        _serve_one(replicas[0], admitted, ready_s[admitted], progress)
    else:
        node.serve(admitted, ready_s[admitted], progress)
    figures = _figures(device, local, spec, stream, node, metrics, admitted)
    return ServingResult({**figures, "seed": seed}, *metrics.times())


def _stream(spec: ServingSpec, requests: Requests, seed: int, warmup: int) -> _Stream:
    """The stream with its predictions. Raises DescriptionError for what cannot be served so."""
    outputs, cards = spec.engine.cut(requests.output_tokens), spec.cluster.cards
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
    replicas, outputs = node.replicas, stream.came.output_tokens
    allocators = [replica.engine.allocator for replica in replicas]
    figures = metrics.figures([replica.engine for replica in replicas], local, allocators[0].layout)
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
    if replicas[0].tiers is not None:
        figures["tiers"] = replicas[0].tiers.figures()
    if stream.inference is not None:
        figures["predictor"] = stream.inference.figures(stream.came.arrival_s, stream.came_warmup)
    transfers, cards = replicas[0].memory.transfers(), spec.tensor_parallel
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
    """Serve all requests on one card: the next turn of a session after its last one, and others by
    the client that was answered last."""
    think_s, metrics = requests.think_s, replica.metrics
    clients, before = int(np.isnan(think_s).sum()), requests.take(admitted).turn_before
    later = before >= 0
    pairs = zip(admitted[before[later]].tolist(), admitted[later].tolist(), strict=True)
    following, first = dict(pairs), admitted[~later]
    begins_s = requests.arrival_s[first[:clients]]
    replica.arrive(first[:clients].tolist(), begins_s.tolist())
    to_send = deque(first[clients:].tolist())
    sessions = bool((requests.session >= 0).any())
    while metrics.ended < len(admitted):
        replica.more = bool(to_send)
        if sessions:
            replica.lasts_s = np.inf if to_send else float(begins_s.max(initial=0.0))
        ended = replica.advance()
        for done in ended:
            request = following.get(done, -1)
            if request < 0:
                if not to_send:
                    continue
                request = to_send.popleft()
            sent_s = replica.now_s + float(think_s[request])
            metrics.arrival_s[request] = sent_s
            replica.arrive([request], [sent_s])
            if recorder is not None:
                recorder.sent(sent_s, request)
        if ended and progress is not None:
            progress(metrics.ended, len(admitted))


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
    routing: Routing | None = None,
) -> Replica:  # fmt: skip
    """A replica for any of `requests`, with its memory empty.

    local: the shard on each of its cards (see `model_of_a_card`). routing: where replicas have the
    experts in common; None: its own.
    predicted: of all requests. metrics: collects what the replica does.
    Raises DescriptionError if the model does not fit or the device lacks what the spec needs.
    """
    layout = kv_region(device, local, spec, seed)
    _require_modelled(local, spec, layout, requests)
    _require_host(device, spec.engine)
    outputs, longest = metrics.output, spec.engine.max_model_len or local.max_position
    longest = min(longest, local.max_position)
    limits = Limits(
        int(spec.engine.max_tokens or outputs.max(initial=1)),
        longest,
        spec.engine.token_budget(longest),
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
    timed: StepModel | DraftingSteps
    steps = timed = StepModel(
        device, local, spec.tensor_parallel, spec.policy.kernel_cost, routing, spec.free,
        spec.memory.phases == "together", layout.groups, layout.sparse,
        even=bool(spec.memory.efficiency or spec.memory.attention),
    )  # fmt: skip
    memory = memory_model(spec.memory, device, local, layout, seed, simulate, routing, allocator)
    engine: Engine
    tiers = None
    if spec.tiers is not None and isinstance(spec.engine, EngineV1Spec):
        tiers = Tiers(spec.tiers, device, local, allocator, steps, spec.tensor_parallel)
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
            timed = DraftingSteps(steps, passes, speculation.tokens, device)
    else:
        kind = ENGINES[spec.engine.name].engine
        engine = kind(spec.engine, allocator, requests, outputs, predicted)
    moves = None if spec.moves is None else Moves(spec.moves, local, layout)
    return Replica(engine, timed, memory, metrics, spec.advance_together, recorder, moves, tiers)


_STATES = ("paged", "static", "odma", "odma-best", "s3", "oracle", "orca")
"""Policies that have a place for states."""


def _require_modelled(
    local: TransformerSpec, spec: ServingSpec, layout: KvLayout, requests: Requests
) -> None:
    several = requests.samples.max(initial=1) > 1
    others = spec.tiers or spec.moves or spec.speculation or spec.policy.copies_prefixes
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

"""How a device serves: what a description of serving says, and what it takes from a device."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from hwmodel.description.description import DescriptionError, Strict
from hwmodel.description.units import Bytes
from hwmodel.specs.device import Device
from hwmodel.specs.kv_order import LAYOUTS, KvOrder
from hwmodel.specs.mlp import Exchange, ExpertPlacement
from hwmodel.specs.number_format import KvFormat, WeightFormat
from hwmodel.specs.transformer import TransformerSpec, shard
from policies.allocators.attention_options import DENSE, AttentionSpec
from policies.allocators.hybrid import Compact, TwoPools, Unified
from policies.allocators.paged import PagedOptions
from policies.allocators.registry import DEFAULT_POLICY, PolicySpec, default_policy, predicts
from policies.engines.engine_options import EngineOptions
from policies.engines.schedulers import DEFAULT_SCHEDULER, SCHEDULERS, EngineChoice, default_options
from policies.engines.speculation import SpeculationSpec
from policies.memory.drafting import drafter_of
from policies.memory.fidelity import FidelitySpec
from policies.memory.routing import RoutingSpec
from policies.memory.step_work import Free
from policies.placements.placements import PlacementChoice
from policies.predictors.predictors import ChosenPredictor, default_predictor
from policies.routers.routers import ROUTERS
from policies.serving.cluster_options import ClusterSpec
from policies.serving.combinations import Facts, conflicts
from policies.serving.fault_options import FaultSpec
from policies.serving.pool_options import DECODE, PREFILL, PoolSpec, PoolsSpec
from policies.transfers.connectors import ConnectorsByName, TiersChoice
from policies.transfers.kv_connector import ConnectorOptions
from policies.transfers.moves import MovesSpec


class ServingSpec(Strict):
    """How requests are served."""

    model: str
    """A shipped model, or the path of one (resolved by the caller with `load_model`)."""
    policy: PolicySpec = default_policy()
    """The allocator of KV memory."""
    engine: EngineChoice = default_options()
    """The scheduler. With v0, `paged` has its defaults of that time; with v1 and `like`, those of
    that version (`EngineOptions.policy_defaults`)."""
    predictor: ChosenPredictor = default_predictor()
    """What is known of the lengths of outputs."""
    memory: FidelitySpec = FidelitySpec()
    memories: PlacementChoice | None = None
    """What lies in which memory of a card that has several (docs/two-memories.md). None: all in its
    main one."""
    kv_layout: KvOrder | None = None
    """None: the one that the policy's authors describe, else that of the card's software
    (`paging.kv_layout` of the accelerator), or between unlike pools heads together in a block."""
    kv_pad: Bytes = 0
    """Bytes behind each row of the KV layout, what a token has in the dimensions after `token`, so
    that rows a power of two apart walk over all channels (docs/layout.md)."""
    attention: AttentionSpec = DENSE
    """What decoding reads of the KV, and what of it is kept."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of the capacity for weights, activations and KV (vLLM's default; with `like` that
    version's)."""
    activation_bytes: Bytes | None = None
    """Memory of each card kept for activations and the like. None: the peak of the largest step,
    in a layer or in the sampler, and with `like` what that version has outside PyTorch."""
    kv_tokens: Annotated[int, Field(ge=1)] | None = None
    """Token slots of the KV cache, as a server logs them. None: what `gpu_memory_utilization`
    leaves."""
    weights: WeightFormat | None = None
    """Format of the weights. None: the model's. Products run at the peak of the type that the
    format computes in, where the device has one, else in fp16."""
    kv: KvFormat | None = None
    """Format of the KV; attention converts it to the type of the activations. None: the
    model's."""
    routing: RoutingSpec = RoutingSpec()
    """How tokens choose the experts of a model that has them."""
    cluster: ClusterSpec = ClusterSpec()
    tensor_parallel: Annotated[int, Field(ge=1)] = 1
    """Cards that the replica spans."""
    expert_parallel: ExpertPlacement = "none"
    """Whole experts on each card of an `expert_group`, and how they are placed; none: each expert
    is split over the cards of a replica."""
    expert_group: Literal["node", "replica"] = "node"
    """Cards over which experts are placed: those of all `cluster.cards` replicas, which then step
    together (data-parallel attention; vLLM's groups of data-parallel x tensor-parallel ranks), or
    those of each replica, which has all experts (vLLM's servers behind a load balancer)."""
    expert_exchange: Exchange = "all_reduce"
    """With `expert_parallel`."""
    moves: MovesSpec | None = None
    """What moving each request's KV would take once its prompt is computed; the run does not wait
    for it. None: nothing is counted."""
    tiers: TiersChoice = None
    """Memories below the device's, which keep KV that it loses (docs/cluster.md). None: none."""
    connectors: ConnectorsByName = {}
    """Other connectors by name, each with its options (docs/extend.md)."""
    pools: PoolsSpec | None = None
    """Replicas that prefill, and others that decode (docs/cluster.md), of `cluster.cards` in all,
    or 1. None: each does both."""
    faults: list[FaultSpec] = []
    """Places that fail and return (docs/cluster.md)."""
    speculation: SpeculationSpec | None = None
    """Drafts that each step verifies (docs/engines.md). None: none."""
    free: list[Free] = []
    """What takes no time: the reading of the weights, all FLOPs, copies of KV within the memory.
    Counterfactuals, not realisable; all else stays, capacity included."""
    _together: bool = PrivateAttr(True)

    @property
    def together(self) -> bool:
        """Whether equal steps are advanced together."""
        return self._together

    def one_by_one(self) -> ServingSpec:
        """The same, a step at a time: for what watches each step, and for tests. Results are the
        same but for a node's (docs/cluster.md)."""
        copy = self.model_copy()
        copy._together = False
        return copy

    @model_validator(mode="before")
    @classmethod
    def completed(cls, data: Any) -> Any:
        """`data` with what the policy is under its engine filled in, so that the description says
        it."""
        if not isinstance(data, dict):
            return data
        engine, policy = data.get("engine"), data.get("policy", {"name": DEFAULT_POLICY})
        if isinstance(engine, EngineOptions):
            engine = {"name": engine.name, "like": getattr(engine, "like", None)}
        if not isinstance(engine, dict) or not isinstance(policy, dict):
            return data
        kind = SCHEDULERS.get(str(engine.get("name", DEFAULT_SCHEDULER)))
        if kind is None:
            return data
        data = {**kind.Options.serving_defaults(engine), **data}
        own = kind.Options.policy_defaults(engine).get(str(policy.get("name")), {})
        return {**data, "policy": {**own, **policy}} if own else data

    @model_validator(mode="after")
    def _connectors_stand_once(self) -> ServingSpec:
        for name in self.connectors.keys() & type(self).model_fields.keys():
            raise ValueError(f"connectors.{name}: stands at {name}")
        return self

    @model_validator(mode="after")
    def _goes_together(self) -> ServingSpec:
        for conflict in conflicts(Facts(self)):
            raise ValueError(conflict)
        return self

    @model_validator(mode="after")
    def _padded_rows_stay(self) -> ServingSpec:
        moves = (self.tiers, self.pools, self.moves, self.connectors, self.cluster.migration,
                 self.cluster.lending, self.cluster.dropping, self.cluster.controllers,
                 getattr(self.engine, "preemption", "recompute") != "recompute")  # fmt: skip
        if self.kv_pad and any(moves):
            raise ValueError(
                "kv_pad: not modelled where KV moves, whose bytes are counted without pads;"
                " expected none of tiers, pools, connectors, moves, controllers of a cluster, swap"
            )
        return self

    @model_validator(mode="after")
    def _faults_of_what_is_there(self) -> ServingSpec:
        for each in self.faults:
            if each.side is not None and self.pools is None:
                raise ValueError("faults.side: only with pools")
            if each.of == "host" and not any(c.keeps_on_host for c in self.connecting.values()):
                raise ValueError("faults.of: host needs tiers")
            many = self.cluster.cards
            if self.pools is not None:
                sides = {PREFILL: self.pools.prefill.replicas, DECODE: self.pools.decode.replicas}
                many = sides.get(each.side or "", min(sides.values()))
            if each.replica is not None and each.replica >= many:
                raise ValueError(f"faults.replica: there are 0 to {many - 1}; got {each.replica}")
        return self

    @model_validator(mode="after")
    def _cards_of_pools(self) -> ServingSpec:
        if self.pools is None:
            return self
        many, cards = self.pools.prefill.replicas + self.pools.decode.replicas, self.cluster.cards
        if cards not in (1, many):
            raise ValueError(f"pools: has {many} replicas; expected cluster.cards 1 or {many}")
        cells = self.cluster.cells
        if self.pools.prefill.replicas % cells or self.pools.decode.replicas % cells:
            raise ValueError(
                f"cluster.cells: {cells} cells of {self.pools.prefill.replicas} replicas that "
                f"prefill and {self.pools.decode.replicas} that decode; expected a divisor of both"
            )
        return self

    def of_cell(self, cell: int, seed: int) -> ServingSpec:
        """The description of one of its cells. seed: by which faults are drawn."""
        cells = self.cluster.cells
        sides: dict[str | None, int] = {None: self.cluster.cards}
        if self.pools is not None:
            sides = {PREFILL: self.pools.prefill.replicas, DECODE: self.pools.decode.replicas}
        faults = [
            own.model_copy(update={"side": side})
            for law in self.faults
            for side, many in sides.items() if law.side in (None, side)
            for own in law.of_cell(cell, cells, many, seed)
        ]  # fmt: skip
        changes: dict[str, Any] = {"cluster": self.cluster.of_a_cell, "faults": faults}
        if self.pools is not None:
            halves = {PREFILL: self.pools.prefill, DECODE: self.pools.decode}
            fewer = {
                name: half.model_copy(update={"replicas": half.replicas // cells})
                for name, half in halves.items()
            }
            changes["pools"] = self.pools.model_copy(update=fewer)
        return self.model_copy(update=changes)

    @property
    def connecting(self) -> dict[str, ConnectorOptions]:
        """Options of all connectors by name, in the order in which they are asked."""
        own = {} if self.tiers is None else {"tiers": self.tiers}
        return {**own, **self.connectors}

    @property
    def simulates_transfers(self) -> bool:
        """Whether what moves to and from connectors is simulated beside the accesses of steps."""
        return any(each.simulated for each in self.connecting.values())

    @property
    def other_devices(self) -> dict[str, str]:
        """Devices of pools that are not the run's, by pool."""
        if self.pools is None:
            return {}
        halves = {PREFILL: self.pools.prefill, DECODE: self.pools.decode}
        return {key: half.device for key, half in halves.items() if half.device is not None}

    def pooled(self, pool: PoolSpec) -> ServingSpec:
        """The description of a replica of a pool. Controllers are of the side that decodes: the
        other one has requests for their prompts alone. Between sides of unlike
        `tensor_parallel` heads lie together in a block, unless a layout is given, so that what a
        rank gets of it is one piece (vLLM's NIXL connector asks for HND)."""
        own = pool.model_dump(exclude={"replicas", "device"}, exclude_none=True)
        given = {name: getattr(pool, name) for name in own}
        layout = pool.kv_layout or self.kv_layout or (pool.policy or self.policy).kv_layout
        if layout is None and self._split_unlike:
            given["kv_layout"] = LAYOUTS["layer_kv_block_head"]
        if pool.device is not None:
            given["memories"] = pool.memories
        decodes = self.pools is not None and pool is self.pools.decode
        cluster = ClusterSpec(stages=self.cluster.stages, pipeline=self.cluster.pipeline)
        if decodes:
            names = ("dropping", "migration", "lending", "controllers")
            moves = {name: getattr(self.cluster, name) for name in names}
            cluster = cluster.model_copy(update=moves)
        if decodes:
            given["moves"] = None  # prompts are computed on the other side
        return self.model_copy(update={**given, "pools": None, "cluster": cluster})

    @property
    def _split_unlike(self) -> bool:
        """Whether the replicas of the two pools span unlike many cards."""
        if self.pools is None:
            return False
        halves = self.pools.prefill, self.pools.decode
        return len({half.tensor_parallel or self.tensor_parallel for half in halves}) > 1

    def half_of(self, replica: int) -> PoolSpec | None:
        """The pool of a replica, of which those that prefill come first; None: there are none.
        Raises DescriptionError for one that is not there."""
        pools, many = self.pools, self.cluster.cards
        if pools is not None:
            many = pools.prefill.replicas + pools.decode.replicas
        if not 0 <= replica < many:
            raise DescriptionError(f"there are replicas 0 to {many - 1}; got {replica}")
        if pools is None:
            return None
        return pools.prefill if replica < pools.prefill.replicas else pools.decode

    def router_of(self, pool: PoolSpec) -> str:
        """The router of a pool."""
        shared = None if self.pools is None else self.pools.placement
        return pool.placement or shared or self.cluster.placement

    def on_device(self, device: Device, model: TransformerSpec) -> ServingSpec:
        """The description with what engine and policy take from the device and the model. Raises
        DescriptionError for options that the model has no use for."""
        longest = model.max_position
        engine = self.engine.on_device(device.capacity_bytes, device.name, longest)
        policy = self.policy.on_device(device.paging)
        if model.state is not None:
            pages = state_pages(self, model_of_a_card(self, model))
            policy = policy.beside_states(model.name, None if pages is None else pages.block)
        return self.model_copy(update={"engine": engine, "policy": policy})

    @property
    def predicts(self) -> bool:
        """Whether requests wait for predictions of their lengths: where their policy, the order of
        the line or the router reads them."""
        policies, routers = [self.policy], {self.cluster.placement: self.cluster.cards}
        if self.pools is not None:
            halves = (self.pools.prefill, self.pools.decode)
            policies += [half.policy for half in halves if half.policy is not None]
            routers = {self.router_of(half): half.replicas for half in halves}
        placed = any(many > 1 and ROUTERS[name].predicts for name, many in routers.items())
        packed = self.engine.packing == "decreasing_first_fit"
        return packed or placed or any(predicts(each) for each in policies)

    @property
    def experts_in_common(self) -> bool:
        """Whether replicas have their experts in common, where there are several."""
        return self.expert_parallel != "none" and self.expert_group == "node"

    @property
    def of_few_cards(self) -> ServingSpec:
        """With two cards, for a try, where all there are do alike and none has a number."""
        cluster = self.cluster
        named = any(each.replica is not None for each in self.faults)
        if cluster.cards <= 2 or cluster.control or self.experts_in_common or self.pools or named:
            return self
        few = cluster.model_copy(update={"cards": 2, "cells": 1})
        return self.model_copy(update={"cluster": few})

    @property
    def drafts(self) -> int:
        """Of a sequence in a step."""
        return 0 if self.speculation is None else self.speculation.tokens


def model_of_a_card(spec: ServingSpec, model: TransformerSpec) -> TransformerSpec:
    """The shard of the model on each card of a replica, in the formats it is served in, with the
    windows of its `attention`. Raises DescriptionError if it cannot be split, or stored so."""
    local = shard(
        model.stored_as(spec.weights, spec.kv),
        spec.tensor_parallel,
        spec.expert_parallel,
        spec.expert_exchange,
        spec.cluster.cards if spec.experts_in_common else 1,
    )
    return spec.attention.served(local)


def state_pages(spec: ServingSpec, local: TransformerSpec) -> Unified | None:
    """vLLM's pages of a model with states, in which no prefix is found (its mode `none`)."""
    paged = local.state is not None and isinstance(spec.policy, PagedOptions)
    if not paged or state_pool(spec, local) is not None:
        return None
    drafter = None
    if spec.speculation is not None:
        drafter = drafter_of(spec.speculation, local, spec.tensor_parallel)
    if drafter is None:
        return Unified(local, drafts=spec.drafts)
    own = drafter.model
    layers, each, made = own.kv_layers, own.kv_layer_bytes, own.attention
    if (made.halves, own.kv_heads, own.head_dim) == (
        local.attention.halves, local.kv_heads, local.head_dim,
    ):  # fmt: skip
        return Unified(local, drafts=spec.drafts, beside=layers)
    pages = Unified(local, drafts=spec.drafts, drafter=(layers, each))
    if not pages.possible:
        raise DescriptionError(
            f"speculation.draft_model: a page of {own.name}, {pages.page} B, is no multiple of one "
            f"of {local.name}, whose latents cannot be padded; expected method ngram, eagle or "
            "mtp, or policy.states: two_pools or compact"
        )
    return pages


def state_pool(spec: ServingSpec, local: TransformerSpec) -> TwoPools | Compact | None:
    """Memory that `paged` keeps apart for states. Raises DescriptionError for a model without, or
    where the number of KV slots is given and they would follow from it."""
    policy = spec.policy
    if not isinstance(policy, PagedOptions) or policy.states is None:
        return None
    if local.state is None:
        raise DescriptionError(f"policy.states: {local.name} has no layers with a state")
    if policy.states == "compact":
        return Compact(local, spec.engine.sequence_cap, drafts=spec.drafts)
    if policy.states == "two_pools" and spec.kv_tokens is not None:
        raise DescriptionError("policy.states: two_pools parts all memory, not with kv_tokens")
    if policy.states == "unified":
        return None
    return TwoPools(local, policy.state_ratio or 0.9, drafts=spec.drafts)

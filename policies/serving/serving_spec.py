"""How a device serves: what a description of serving says, and what it takes from a device."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from hwmodel.description.description import DescriptionError, Strict
from hwmodel.description.units import Bytes
from hwmodel.specs.device import Device
from hwmodel.specs.kv_order import KvOrder
from hwmodel.specs.mlp import Exchange, ExpertPlacement
from hwmodel.specs.number_format import KvFormat, WeightFormat
from hwmodel.specs.transformer import TransformerSpec, shard
from policies.allocators.attention_options import DENSE, AttentionSpec
from policies.allocators.hybrid import Compact, TwoPools, Unified
from policies.allocators.paged import PagedOptions
from policies.allocators.registry import PolicySpec
from policies.engines.engine_options import EngineOptions
from policies.engines.engine_v0 import PAGED_V0, EngineV0Spec
from policies.engines.engine_v1 import EngineV1Spec
from policies.engines.generations import EngineChoice
from policies.engines.speculation import SpeculationSpec
from policies.engines.vllm_version import VERSIONS
from policies.memory.drafting import drafter_of
from policies.memory.fidelity import FidelitySpec
from policies.memory.routing import RoutingSpec
from policies.memory.step import Free
from policies.predictors.predictor import ChosenPredictor, PredictorSpec
from policies.serving.cluster import ClusterSpec
from policies.serving.pool_options import PoolSpec, PoolsSpec
from policies.serving.pool_replica import DECODE, PREFILL
from policies.transfers.moves import MovesSpec
from policies.transfers.tier_options import TiersSpec


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
    def _moves_of_whole_cards(self) -> ServingSpec:
        if self.cluster.stages > 1 and self.expert_parallel != "none":
            raise ValueError("cluster.stages: not with expert_parallel")
        if self.cluster.moves and (self.engine.name != "v1" or self.expert_parallel != "none"):
            raise ValueError(
                "cluster.dropping, .migration, .lending: need engine v1, and no expert_parallel"
            )
        if self.cluster.dropping is not None and self.kv_tokens is not None:
            raise ValueError("cluster.dropping: frees bytes, not with kv_tokens")
        return self

    @model_validator(mode="after")
    def _contends_where_phases_are_one(self) -> ServingSpec:
        memory = self.memory
        if memory.fidelity == "analytic" or memory.phases == "in_turn":
            for name, given in (("tiers", self.tiers), ("pools", self.pools)):
                if given is not None and given.contention == "simulated":
                    raise ValueError(
                        f"{name}.contention: simulated needs memory.phases: together, and "
                        "memory.fidelity: sampled, full or exhaustive"
                    )
        return self

    @model_validator(mode="after")
    def _fleet_of_replicas(self) -> ServingSpec:
        fleet = self.cluster.fleet
        if fleet is not None and self.pools is not None:
            raise ValueError("cluster.fleet: not with pools")
        return self

    @model_validator(mode="after")
    def _pools_alone(self) -> ServingSpec:
        if self.pools is None:
            return self
        if self.moves is not None:
            raise ValueError("pools: not with moves")
        if self.cluster.stages > 1 or self.cluster.moves:
            raise ValueError("pools: not with cluster.stages, .dropping, .migration or .lending")
        many, cards = self.pools.prefill.replicas + self.pools.decode.replicas, self.cluster.cards
        if cards not in (1, many):
            raise ValueError(f"pools: has {many} replicas; expected cluster.cards 1 or {many}")
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
        apart = self.expert_parallel != "none"
        apart |= self.cluster.stages > 1 or self.cluster.moves
        if self.speculation is not None and (self.engine.name != "v1" or apart):
            raise ValueError(
                "speculation: needs engine v1 and expert_parallel none, without cluster.stages, "
                ".dropping, .migration or .lending"
            )
        return self

    @model_validator(mode="after")
    def _cards_of_one_host(self) -> ServingSpec:
        apart = self.cluster.stages > 1 or self.cluster.fleet is not None
        if isinstance(self.engine, EngineV0Spec) and self.engine.swap_dram is not None and apart:
            raise ValueError("engine.swap_dram: not with cluster.stages or .fleet")
        return self

    def on_device(self, device: Device, model: TransformerSpec) -> ServingSpec:
        """The description with what engine and policy take from the device."""
        longest = model.max_position
        engine = self.engine.on_device(device.capacity_bytes, device.name, longest)
        policy = self.policy.on_device(device.paging)
        if isinstance(policy, PagedOptions) and model.state is not None:
            pages = state_pages(self, model_of_a_card(self, model))
            plain = {"prefix_caching": False, "cached_recompute": False}
            block = policy.block if pages is None else pages.block
            policy = policy.model_copy(update={"block": block, **plain})
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
    def drafts(self) -> int:
        """Of a sequence in a step."""
        return 0 if self.speculation is None else self.speculation.tokens

    @property
    def samples_apart(self) -> bool:
        """Whether each sample is a request of its own, as the policy has it under engine v1."""
        if not isinstance(self.engine, EngineV1Spec):
            return False
        if self.policy.samples == "as_engine":
            return self.engine.like is not None
        return self.policy.samples == "apart"


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

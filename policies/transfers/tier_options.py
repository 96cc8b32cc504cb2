"""What a serving description says of the tiers below the device's memory."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from hwmodel.description.description import Strict
from hwmodel.description.units import PositiveBytes
from hwmodel.specs.kv_order import KvOrder
from policies.engines.host_memory import HostMemory
from policies.transfers.kv_connector import ConnectorOptions

Count = Annotated[int, Field(ge=1)]
PauseChoice = Literal["keep", "drop", "swap", "least"]
Contends = Literal[True, False, "simulated"]
EvictionName = Literal["lru", "arc", "priority", "pinned"]


class HcacheSpec(Strict):
    """Hidden states instead of KV."""

    layers: Count | None = None
    """So many layers by hidden states. None: as many as make link and cores end together."""
    overlap: bool = False
    """Whether projections use cores while memory bounds a step (at best); or take them alone."""


class HostSpec(Strict):
    """The host's memory; options of vLLM's `OffloadingConnector` have its names
    (`CPUOffloadingSpec`) and defaults."""

    renamed = {"fails_at_s": "serving.faults, of: host"}

    link: str
    """A shipped link, or a file."""
    cpu_bytes_to_use: PositiveBytes
    """Of all cards of the replica together."""
    block_size: Count | None = None
    """Tokens of a block, a multiple of the device's. None: the device's; HCache: 64 (paper), or
    the next multiple."""
    eviction_policy: EvictionName = "lru"
    """Which stored block goes first: `lru`, the one asked for longest ago; `arc`, by adaptive
    replacement; `priority`, those of requests that never come again, then of sessions, then
    what requests share; `pinned`, as `lru`, but never a prefix that requests share. vLLM has the
    first two."""
    store_threshold: Annotated[int, Field(ge=0)] = 0
    """Blocks that fewer requests have asked for are not stored."""
    offload_prompt_only: bool = True
    """Whether blocks of outputs are not stored."""
    kv_layout: KvOrder | None = None
    """Order of dimensions in the host. None: the device's."""
    dram: HostMemory | Literal["card"] | None = None
    """`card`: the card's own, which moves every byte twice. None: never limits."""
    hcache: HcacheSpec | None = None
    """Whether it keeps hidden states. Those of outputs leave while a request decodes."""


class DriveSpec(Strict):
    """A drive below the host: a rate. What the host stores is written to it as well, and what only
    it has goes to the host first (vLLM's secondary tiers)."""

    link: str = "nvme-pcie4"
    """A shipped link, or a file."""
    bytes: PositiveBytes
    """That it holds."""
    eviction_policy: EvictionName = "lru"
    """Which blocks leave the drive when it is full, as for the host."""


class PausesSpec(Strict):
    """What becomes of a session's KV until its next turn. It is stored then, and at no other
    time."""

    policy: PauseChoice = "least"
    """`keep`: its memory; `drop`: to be computed again; `swap`: to the tier; `least`: what wastes
    least (InferCept)."""
    known: bool = False
    """least: whether the length of a pause is known when it begins."""


class TiersSpec(ConnectorOptions):
    """Tiers below the device's memory, and when they are used."""

    renamed = {"card_fails_at_s": "serving.faults"}
    keeps_on_host: ClassVar[bool] = True

    host: HostSpec
    ssd: DriveSpec | None = None
    load: Literal["always", "sooner", "never"] = "always"
    """Whether KV that a tier has is loaded in any case (vLLM), recomputed where the model of a lone
    prefill says that this is sooner, or recomputed in any case (a control)."""
    layerwise: bool = False
    """Layers come one by one: a step begins at once, and each layer waits for its own KV (SGLang's
    HiCache). False: a request waits for all of its KV, and others run meanwhile (vLLM)."""
    pauses: PausesSpec | None = None
    """None: prompts are stored when they are computed, and memory is free when a turn ends."""
    synchronous: bool = False
    """Steps wait for all transfers, as vLLM's swapping had it before v1."""
    contention: Contends = True
    """Whether transfers take their bytes from the bandwidth of the card's DRAM. `simulated`: what a
    byte takes is measured, in `memory.phases: together`."""

    @model_validator(mode="after")
    def _reads_by_layer(self) -> TiersSpec:
        if self.layerwise and self.ssd is not None:
            raise ValueError("layerwise: not with ssd, whose blocks come to the host whole")
        plain = self.pauses is None and self.contention != "simulated"
        if self.host.hcache and not (plain and not self.layerwise and not self.synchronous):
            raise ValueError(
                "host.hcache: not with pauses, layerwise, synchronous, nor contention: simulated"
            )
        if self.contention == "simulated" and (self.synchronous or self.host.dram == "card"):
            raise ValueError("contention: simulated is not with synchronous, nor host.dram: card")
        return self

    @property
    def simulated(self) -> bool:
        return self.contention == "simulated"

"""What a serving description says of a pool that prefills and one that decodes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hwmodel.description.description import Strict, checked
from hwmodel.specs.kv_order import KvOrder
from hwmodel.specs.number_format import KvFormat
from policies.allocators.registry import PolicySpec
from policies.engines.schedulers import EngineChoice
from policies.placements.placements import PlacementChoice
from policies.transfers.tier_options import Contends

Count = Annotated[int, Field(ge=1)]
PREFILL, DECODE = "prefill", "decode"
"""The sides."""


class PoolSpec(Strict):
    """Replicas that do one half. What is None is as in the serving description around it."""

    replicas: Count = 1
    """How many."""
    placement: str | None = None
    """None: that of both sides."""
    device: str | None = None
    """A shipped accelerator, or a file. None: the run's."""
    tensor_parallel: Count | None = None
    """Cards of each."""
    policy: PolicySpec | None = None
    """Allocator of this half."""
    engine: EngineChoice | None = None
    """Scheduler of this half."""
    kv_layout: KvOrder | None = None
    """Order of the KV in this half's memory."""
    kv: KvFormat | None = None
    """Format of its KV. Where the other side has another one, KV moves in the smaller of the two,
    and is converted at the other end beside the copy (assumed)."""
    kv_tokens: Count | None = None
    """Token slots of each."""
    memories: PlacementChoice | None = None
    """What lies in which of its card's memories. None: as on the run's cards, or, on a `device` of
    its own, all in its main one."""


class PoolsSpec(Strict):
    """Prefill and decode apart (DistServe, Splitwise): prompts are computed in one pool, their KV
    moves, and the other pool decodes."""

    renamed = {"fails": "serving.faults"}

    prefill: PoolSpec
    decode: PoolSpec
    link: str
    """A shipped link, or a file, of each rank."""
    mode: Literal["pull", "push"] = "pull"
    """When the decode side gives memory: pull, when the prompt is computed (vLLM's NIXL
    connector); push, before it is (SGLang, Mooncake)."""
    transfer: Literal["whole", "layers"] = "whole"
    """All layers after the prefill, or each layer of each chunk as it is computed (with push)."""
    contention: Contends = True
    """Whether transfers take their bytes from the bandwidth of both cards' DRAM; `simulated` as of
    tiers."""
    placement: str | None = None
    """The router of each side. None: `cluster.placement`."""

    @checked
    def _possible(self) -> None:
        if self.transfer == "layers" and self.mode != "push":
            raise ValueError("transfer: layers needs mode: push; a pull begins after the prefill")

"""Paged allocation: blocks of a few tokens from a free list (Kwon et al. 2023, vLLM).

A freed block keeps its content until it is handed out again, and vLLM finds full blocks by what
they and all before them hold (automatic prefix caching), which makes a tree. Modelled are the cases
of serving: a preempted request finds the blocks of its last residence, requests that begin with the
same texts (`Demand.prefix_id`, `above`) hold their full blocks together, counted by reference, and
a turn of a session finds the prompts and answers of those before. Only an unbroken prefix of full
blocks counts. Blocks can be found as soon as they are stored, as in vLLM v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from hwmodel.specs.accelerator import Paging
from policies.allocators.allocator import PolicyOptions
from policies.allocators.block_allocator import BlockAllocator, refuse_prefixes
from policies.allocators.declaration import CHOICES, Range, References
from policies.allocators.free_lists.free_list_registry import DEFAULT_FREE_LIST, FreeListName
from policies.allocators.kv_groups import WindowKv
from policies.allocators.kv_managers import WindowRules
from policies.allocators.losses import GROWING


class PagedOptions(PolicyOptions):
    """Options of `paged`."""

    name: Literal["paged"] = "paged"
    block: Annotated[int, Field(ge=1, le=2048)] | None = None
    """Tokens in a block. None: the device's (`paging.block`), 16 where nothing is known (vLLM's
    default). Above 256 for the sweep `kv-extent` alone, which shows where longer extents no longer
    help."""
    free_list: FreeListName = DEFAULT_FREE_LIST
    """Order of reuse; vLLM v1 has a queue (later versions: blocks without a hash go to its front,
    `split`), v0 a stack. `sorted`, `staged`, `runs` and `buddy` keep blocks together, whatever is
    cached in them; `oldest_runs` begins each run at the block freed first. `spread` hands out the
    block behind the request's last one, and keeps room behind each."""
    free_list_window: Annotated[float, Field(gt=0, le=1)] | None = None
    """With `spread`: of the blocks freed first, the share of all blocks that may be handed out, so
    that what was freed last is still found again. None: all."""
    watermark: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the blocks, rounded down, that admission leaves free (vLLM v0: 0.01)."""
    idle_watermark: bool = True
    """Whether admission also leaves them free while no request runs (vLLM v0). vLLM v1 from 0.33
    on does not: a request that fits the memory is admitted when it is alone."""
    null_block: bool = False
    """The first block is never handed out (vLLM v1: `BlockPool.null_block`); the watermark is a
    share of the blocks with it."""
    cached_recompute: bool = True
    """A preempted request keeps what is still in its freed blocks (vLLM v1: enable_prefix_caching
    is on by default). False: all is computed again."""
    prefix_caching: bool = True
    """Requests with the same system prompt hold its full blocks together, and turns of a session
    find those of the turns before."""
    shared_samples: bool | None = None
    """Samples of one prompt hold its full blocks together. None: where prefix caching is on, by
    which vLLM v1 finds them. vLLM v0 forked them without it."""
    window_rules: WindowRules = "0.33"
    """vLLM version whose rules hold for sliding windows."""
    states: Literal["unified", "two_pools", "compact"] | None = None
    """Where layers with a state keep it: in blocks like those of KV, or apart, by SGLang's ratio,
    or for `max_num_seqs` and one more. None: `unified`, where the model has such layers."""
    state_ratio: Annotated[float, Field(gt=0, le=100)] | None = None
    """With `two_pools`: bytes of states over bytes of KV (SGLang: `mamba_full_memory_ratio`). None:
    0.9, its default."""
    state_caching: Literal["align"] | None = None
    """What states are found again (vLLM: `mamba_cache_mode`). `align`: with `unified`, that at the
    end of a request's last full block, for which chunks of prompts end at ends of blocks. None:
    none."""
    indirection: Annotated[float, Field(ge=1, le=10)] = 1.0
    """Multiplies decode-attention time for block-table lookups. 1 is assumed, as measured for pages
    of 128 by bulk copy; see docs/memory-time.md."""

    @model_validator(mode="after")
    def _ratio_of_pools(self) -> PagedOptions:
        if self.state_ratio is not None and self.states != "two_pools":
            raise ValueError("state_ratio: only with states: two_pools")
        if self.free_list_window is not None and self.free_list != "spread":
            raise ValueError("free_list_window: only with free_list: spread")
        if self.state_caching is not None and self.states in ("two_pools", "compact"):
            raise ValueError(
                "state_caching: align keeps states in blocks; expected states: unified"
            )
        return self

    @property
    def kernel_cost(self) -> float:
        return self.indirection

    def on_device(self, paging: Paging) -> PagedOptions:
        return self.model_copy(update={"block": paging.block}) if self.block is None else self

    def beside_states(self, model: str, block: int | None) -> PagedOptions:
        if self.state_caching == "align":
            return self.model_copy(update={"block": block or self.block})
        refuse_prefixes(self, model)
        changes = {"prefix_caching": False, "cached_recompute": False, "block": block or self.block}
        return self.model_copy(update=changes)

    @property
    def saves_states(self) -> bool:
        return self.state_caching == "align"

    @property
    def kv_of_windows(self) -> WindowKv:
        return "blocks"


class PagedAllocator(BlockAllocator):
    """Paged allocation, as `BlockAllocator` does it; see the module."""

    Options: ClassVar[type[PolicyOptions]] = PagedOptions
    reading = (
        "blocks of 16 tokens from one free list, preemption by recomputation (Kwon et al. "
        "2023), with vLLM's defaults of the engine's generation"
    )
    answers: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "a watermark of 5 %": {"watermark": 0.05},
        "one of 10 %": {"watermark": 0.1},
        "blocks of 64": {"block": 64},
        "blocks of 128": {"block": 128},
        "blocks that lie together": {"free_list": "spread", "watermark": 0.05},
    }
    losses = GROWING
    searched = {
        "block": Range(1, 2048), "free_list": CHOICES, "watermark": Range(0, 1),
        "idle_watermark": CHOICES, "null_block": CHOICES, "cached_recompute": CHOICES,
        "prefix_caching": CHOICES, "shared_samples": CHOICES, "window_rules": CHOICES,
        "indirection": Range(1, 10), "state_ratio": Range(0, 100), "free_list_window": Range(0, 1),
    }  # fmt: skip
    references = References(("static",), ceilings=("ideal",))

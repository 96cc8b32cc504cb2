"""What is refused where KV moves: a line that names the key."""

from __future__ import annotations

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Allocator
from policies.allocators.block_allocator import BlockAllocator
from policies.allocators.capabilities import Caches
from policies.engines.engine_v1 import EngineV1


def require_plain(key: str, engine: EngineV1, late: bool = False) -> None:
    """Raises DescriptionError for options of v1 that are not modelled with KV in motion. late:
    asynchronous scheduling is."""
    spec = engine.spec
    plain = spec.batching == "any" and spec.packing == "arrival" and not engine.in_turn
    if (spec.async_scheduling and not late) or not plain:
        needs = "neither" if late else "engine.async_scheduling: false, and neither"
        raise DescriptionError(
            f"{key}: needs {needs} batching, packing, long_prefill_token_threshold nor "
            "prefill_schedule_interval"
        )
    if engine.several:
        raise DescriptionError(
            f"{key}: several samples in a request are not modelled; engine.like makes "
            "a request of each"
        )


def require_blocks(key: str, allocator: Allocator) -> None:
    """Raises DescriptionError for a policy without blocks that are found again, and for KV that is
    more than the numbers of heads in blocks of tokens."""
    layout, policy = allocator.layout, allocator.options.name
    if layout.groups is not None or layout.apart is not None or layout.sparse is not None:
        raise DescriptionError(f"{key}: the model has windows, scales apart or an index of tokens")
    if not isinstance(allocator, BlockAllocator) or not isinstance(allocator, Caches):
        raise DescriptionError(
            f"{key}: policy {policy} has no blocks that are found again; expected paged"
        )

"""Names of the blocks that requests of a plain run have in common (`plain_texts`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from policies.requests.requests import IntArray, Requests
from policies.serving.plain.plain_state import Blocks

MOST_NAMES = 1 << 24
"""Names that the core keeps; 128 MiB."""
Key = tuple[str, int]


def sharing_requests(requests: Requests) -> IntArray:
    """Those that may find what others have stored, int64 (n,)."""
    columns = (requests.prefix_id, requests.parent, requests.context)
    return np.flatnonzero(np.any([each >= 0 for each in columns], axis=0))


def too_many(requests: Requests, block: int) -> bool:
    """Whether there may be more names than the core keeps."""
    sharing = sharing_requests(requests)
    whole = (requests.prompt_tokens + requests.output_tokens)[sharing]
    return int((whole // block + 1).sum()) * 2 > MOST_NAMES


def of_texts(engine: Any, allocator: Any, sharing: IntArray, blocks: Blocks) -> Blocks:
    """The blocks, with what is found by whom."""
    index, block = allocator.caching.index, allocator.block
    count = len(engine.left)
    whole = (engine.prompt + engine.output) // block + 1
    own: dict[int, Key] = {}
    parts: dict[int, list[tuple[Key, int]]] = {}
    width: dict[Key, int] = {}
    until, counted = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    goes_on = np.zeros(count, np.bool_)
    for request in sharing.tolist():
        demand, end = engine.demanded(request), 0
        of_request = parts[request] = []
        for key, tokens in index._texts(demand):
            end = max(end, min(tokens, demand.prompt) // block)
            of_request.append((key, end))
            width[key] = max(width.get(key, 0), end)
        until[request] = demand.prompt if demand.parent >= 0 else demand.prefix_tokens
        counted[request] = demand.prefix_id >= 0 or demand.session >= 0
        goes_on[request] = index.continues(demand)
        if index.keeps(demand):
            key = ("session", demand.session) if goes_on[request] else ("own", request)
            own[request] = key
            width[key] = max(width.get(key, 0), int(whole[request]))
    base: dict[Key, int] = {}
    names = 0
    for key, places in width.items():
        base[key] = names
        names += places
    every = [each for request in sharing.tolist() for each in parts[request]]
    many = np.zeros(count + 1, np.int64)
    many[1 + sharing] = [len(parts[request]) for request in sharing.tolist()]
    own_base = np.full(count, -1, np.int64)
    own_base[list(own)] = [base[key] for key in own.values()]
    shares = np.zeros(count, np.bool_)
    shares[sharing] = True
    of_pool = len(blocks.written)
    return blocks._replace(
        users=allocator.pool.users, name=np.full(of_pool, -1, np.int64),
        older=np.full(of_pool, -1, np.int64), newer=np.full(of_pool, -1, np.int64),
        oldest=np.full(max(names, 1), -1, np.int32), newest=np.full(max(names, 1), -1, np.int32),
        part_at=np.cumsum(many), part_end=np.array([end for _, end in every], np.int64),
        part_base=np.array([base[key] for key, _ in every], np.int64), own_base=own_base,
        until=until, shares=shares, goes_on=goes_on, counted=counted,
        hit=np.zeros(blocks.table.shape[1], np.int64),
    )  # fmt: skip

"""To the card where the KV that a request finds and the KV that is there cost least.

The cost of NVIDIA Dynamo's KV router (docs.nvidia.com/dynamo, "KV Cache Routing", cost
calculation): overlap weight x blocks to prefill + blocks of requests under way. Here both are in
tokens, and prompts in line count among those under way. Dynamo's workers publish which blocks they
store and remove; here each card is asked what its allocator would find, as of its last event.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from policies.requests.requests import FloatArray, IntArray
from policies.routers.router import Router


class KvAware(Router):
    """To the card with the least `overlap_weight` x tokens that it would prefill + tokens that it
    holds or has in line; the first of equals."""

    name = "kv_aware"
    reports = True
    overlap_weight: ClassVar[float] = 1.0
    """Dynamo's default of `--kv-overlap-score-weight`."""

    def choose(self, request: int, count: IntArray, tokens: FloatArray) -> int:
        view = self.manager
        held = view.kv_slots[view.cards]
        requests = view.requests
        begins_alone = requests.prefix_id[request] < 0 and requests.context[request] < 0
        if view.cached is None or (begins_alone and requests.parent[request] < 0):
            return int(np.argmin(held))  # what no card holds need not be asked of a thousand
        found = [view.cached(card, request) for card in view.cards.tolist()]
        prefill = requests.prompt_tokens[request] - np.array(found, np.int64)
        return int(np.argmin(self.overlap_weight * prefill + held))

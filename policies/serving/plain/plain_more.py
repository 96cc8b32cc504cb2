"""What Python does for the core when it returns, of one card or of several."""

from __future__ import annotations

from typing import Any

import numpy as np

from policies.serving.plain.plain_state import Blocks, PlainRequests


def futile(requests: PlainRequests) -> str:
    """As `Progress.preempted`."""
    times = requests.futile
    most = np.flatnonzero(times == times.max())
    request = int(most[requests.futile_turn[most].argmin()])
    return f"request {request} was preempted {int(times.max())} times without progress"


def more_kept(blocks: Blocks, state: Any) -> Blocks:
    """With twice as many rows for blocks of preempted requests."""
    more = len(blocks.kept)
    kept, written = (
        np.concatenate((each, np.zeros_like(each))) for each in (blocks.kept, blocks.kept_written)
    )
    unused = np.zeros(2 * more, np.int64)
    free = int(state["kept_unused"])
    unused[:free] = blocks.kept_unused[:free]
    unused[free : free + more] = np.arange(more, 2 * more)
    state["kept_unused"] = free + more
    count = np.concatenate((blocks.kept_count, np.zeros(more, np.int64)))
    return blocks._replace(kept=kept, kept_written=written, kept_count=count, kept_unused=unused)

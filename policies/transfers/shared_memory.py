"""The memory of hosts, where the links of several cards to it share what it gives."""

from __future__ import annotations

import math
from typing import NamedTuple

from policies.transfers.kv_link import Transfer


class MemoryShare(NamedTuple):
    """Bytes a second that a transfer takes from one time to another, seconds."""

    transfer: Transfer
    begins_s: float
    ends_s: float
    rate: float


class SharedMemory:
    """Of so much `bandwidth`, bytes a second; transfers are given in the order in which they begin.
    Each goes at its links' rate, or what those before it leave (assumed: memory serves who came
    first). One that is lost leaves what it had."""

    def __init__(self, bandwidth: float) -> None:
        self._bandwidth = bandwidth
        self._taken: list[MemoryShare] = []

    def seconds(self, transfer: Transfer, at_s: float, size: float) -> float:
        """How long a transfer takes from `at_s` on, of `size` bytes over the links of all of its
        cards, `alone_s` of which it would take."""
        rate = size / transfer.alone_s
        self._taken = [
            each for each in self._taken if each.ends_s > at_s and not each.transfer.dropped
        ]
        edges = {edge for each in self._taken for edge in each[1:3] if edge > at_s}
        now_s, left, own = at_s, size, list[MemoryShare]()
        for edge in (*sorted(edges), math.inf):
            others = sum(each.rate for each in self._taken if each.begins_s <= now_s < each.ends_s)
            most = min(rate, self._bandwidth - others)
            if most > 1e-9 * self._bandwidth:  # less is rounding
                ends_s = min(edge, now_s + left / most)
                own.append(MemoryShare(transfer, now_s, ends_s, most))
                left -= most * (ends_s - now_s)
                now_s = ends_s
                if ends_s < edge:
                    break
            now_s = max(now_s, edge)
        self._taken += own
        return own[-1].ends_s - at_s if own else 0.0

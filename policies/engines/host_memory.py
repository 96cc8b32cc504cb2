"""The memory of a host, which the links of all its cards share."""

from __future__ import annotations

import math
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from hwmodel.description.description import Strict
from hwmodel.specs.device import load_device


class HostMemory(Strict):
    """The DRAM behind a link: a described memory."""

    memory: str
    """A shipped memory, or a file."""
    channels: Annotated[int, Field(ge=1)]
    """How many of them."""

    @property
    def bandwidth(self) -> float:
        """Bytes a second at its peak."""
        return load_device(self.memory).peak_gbps * 1e9 * self.channels


class Swapping(NamedTuple):
    """How a scheduler wants KV of preempted requests to be swapped."""

    choice: Literal["swap", "least"]
    """Of all requests, or where that wastes less than to compute again."""
    space_bytes: int
    """For each card."""
    dram: HostMemory | None = None
    """That memory, which the copies of all cards share. None: it carries all that links do."""
    contends: bool = True
    """Whether what hides behind a step takes its bytes from the bandwidth of the card's DRAM."""
    link: str | None = None
    """A shipped link, or a file, whose law copies follow, descriptor by descriptor. None: bytes
    over the card's own link alone."""


class HostTraffic:
    """Copies between cards and a memory of so much `bandwidth`, bytes a second; they are given in
    the order in which they begin. Each goes at its links' rate, or what those before it leave
    (assumed: memory serves who came first)."""

    def __init__(self, bandwidth: float) -> None:
        self._bandwidth = bandwidth
        self._taken: list[tuple[float, float, float]] = []
        """(from, to, bytes a second), seconds."""

    def seconds(self, at_s: float, size: float, rate: float) -> float:
        """How long so many bytes take from `at_s` on, over links of `rate` bytes a second."""
        self._taken = [each for each in self._taken if each[1] > at_s]
        edges = {edge for each in self._taken for edge in each[:2] if edge > at_s}
        now_s, left, own = at_s, size, []
        for edge in (*sorted(edges), math.inf):
            others = sum(taken for begins, ends, taken in self._taken if begins <= now_s < ends)
            mine = min(rate, self._bandwidth - others)
            if mine > 1e-9 * self._bandwidth:  # less is rounding
                ends = min(edge, now_s + left / mine)
                own.append((now_s, ends, mine))
                left -= mine * (ends - now_s)
                now_s = ends
                if ends < edge:
                    break
            now_s = max(now_s, edge)
        self._taken += own
        return own[-1][1] - at_s if own else 0.0


def host_of(swapping: Swapping | None) -> HostTraffic | None:
    """The traffic of a host's memory which cards that swap so have in common; None: it carries all
    that links do."""
    dram = None if swapping is None else swapping.dram
    return None if dram is None else HostTraffic(dram.bandwidth)

"""The memory of a host, which the links of all its cards share."""

from __future__ import annotations

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

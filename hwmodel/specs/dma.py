"""The engines that move data between memory and cores."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hwmodel.description.description import Strict, checked
from hwmodel.description.units import BytesPerSecond, Nanoseconds, PositiveBytes

Positive = Annotated[int, Field(ge=1)]


class Gather(Strict):
    """Descriptors that are lists of addresses."""

    elements: Positive
    """Of a list at most; consecutive reads, or consecutive writes, of one engine."""
    element_cost: Nanoseconds
    """Time an engine spends on each element, the first included, beside `descriptor_cost` for the
    list. An element is what would be a descriptor of its own."""


class Dma(Strict):
    """The engines that move data between memory and cores; all of them alike."""

    engines: Annotated[int, Field(ge=1, le=1024)]
    """Whatever moves data by itself: cores with DMA, streaming multiprocessors."""
    window: PositiveBytes
    """Bytes an engine may have outstanding."""
    request: PositiveBytes
    """Largest piece an engine sends at once."""
    minimum_access: PositiveBytes | None = None
    """Reads fetch whole aligned blocks of so many bytes. Before a write come reads of the blocks
    that it does not fill, for which it does not wait; it then fills them. None, or no more than a
    burst: bursts."""
    descriptor_cost: Nanoseconds
    """Time an engine spends on each descriptor before its first request."""
    strided: bool = False
    """A descriptor may be of two dimensions: three or more extents of one size, a constant stride
    apart, are one, up to a window of bytes. False: each extent has a descriptor of its own."""
    gather: Gather | None = None
    """None: every descriptor is for one extent (or one strided run)."""
    port_bandwidth: BytesPerSecond
    """Rate at which one engine can issue."""
    request_latency: Nanoseconds
    """From engine to memory controller."""
    response_latency: Nanoseconds
    """From memory controller back to the engine."""

    @property
    def extent_cost(self) -> float:
        """Time an engine spends before each extent of many, ns in the mean."""
        if self.gather is None:
            return float(self.descriptor_cost)
        return self.descriptor_cost / self.gather.elements + self.gather.element_cost

    @checked
    def _sizes_fit(self) -> None:
        if self.window < self.request:
            raise ValueError("window is smaller than one request")
        if (least := self.minimum_access) is not None and least & (least - 1):
            raise ValueError("minimum_access must be a power of two")

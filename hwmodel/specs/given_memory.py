"""A memory of which a bandwidth is given instead of timings."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from hwmodel.description.description import Strict
from hwmodel.description.units import BytesPerSecond, Nanoseconds, PositiveBytes
from hwmodel.specs.by_size import Share, SizedShare, rising


class Flash(Strict):
    """A memory that is read and written in pages, many at a time."""

    page: PositiveBytes
    """Reads take whole pages."""
    planes: Annotated[int, Field(ge=1)]
    """That read, each a page, at the same time."""
    read_latency: Annotated[Nanoseconds, Field(gt=0)]
    """Of a page, from the array. What a step reads is known ahead, so that it bounds the rate and
    is waited for once (assumed: a buffer that holds a page of every plane)."""
    write_bandwidth: Annotated[BytesPerSecond, Field(gt=0)]
    """Of whole pages, which writes are gathered into (assumed)."""
    endurance: Annotated[int, Field(ge=1)]
    """Times that all of it may be written."""

    @property
    def array_rate(self) -> float:
        """Bytes a second that the planes give together."""
        return self.planes * self.page / (self.read_latency * 1e-9)


class GivenMemory(Strict):
    """A memory whose timings are not known well enough to simulate it."""

    bandwidth: Annotated[BytesPerSecond, Field(gt=0)]
    """Peak."""
    efficiency: Share
    """Share of the peak that every phase of a step reaches, unless `serving.memory` gives it."""
    weights: Share | None = None
    """Share of the peak that reads of the weights reach. None: as every phase."""
    attention: Annotated[list[SizedShare], AfterValidator(rising)] | None = None
    """The same of the KV that decode attention reads, by the bytes of a layer, between two sizes in
    proportion to their logarithms. None: as every phase."""
    flash: Flash | None = None
    """Where it is flash: the pages that a step touches say what its bytes take. None: it is not."""

    @property
    def of_weights(self) -> float:
        """Share of the peak at which weights are read."""
        return self.efficiency if self.weights is None else self.weights

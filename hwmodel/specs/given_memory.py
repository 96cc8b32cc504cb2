"""A memory of which a bandwidth is given instead of timings."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from hwmodel.description.description import Strict
from hwmodel.description.units import BytesPerSecond
from hwmodel.specs.by_size import Share, SizedShare, rising


class GivenMemory(Strict):
    """A memory whose timings are not known well enough to simulate it."""

    bandwidth: Annotated[BytesPerSecond, Field(gt=0)]
    """Peak."""
    efficiency: Share
    """Share of the peak that every phase of a step reaches, unless `serving.memory` gives it."""
    weights: Share | None = None
    """The same of the weights alone. None: as every phase."""
    attention: Annotated[list[SizedShare], AfterValidator(rising)] | None = None
    """The same of the KV that decode attention reads, by the bytes of a layer, between two sizes in
    proportion to their logarithms. None: as every phase."""

    @property
    def of_weights(self) -> float:
        """Share of the peak at which weights are read."""
        return self.efficiency if self.weights is None else self.weights

"""What a serving description says of places that fail and return."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from hwmodel.description.description import Strict, checked

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class FaultSpec(Strict):
    """When replicas fail, and how long they are away (all assumed). One that fails loses its KV and
    the step under way; who was there goes where the router says, with the tokens made so far, whose
    KV is computed again, or is found in tiers, which outlive it. It returns empty."""

    of: Literal["replica", "host"] = "replica"
    """What fails: replicas, or the memory of a host (`tiers.host`), which loses all content, what
    is under way included, and is there again at once; the drive keeps its own."""
    side: Literal["prefill", "decode"] | None = None
    """With pools: of which replicas. None: of both, or of all there are."""
    replica: Annotated[int, Field(ge=0)] | None = None
    """This one, from 0, at `at_s`."""
    share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """This share of them, drawn, together at `at_s`; one at least."""
    at_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Once, at this time. Without `replica` and `share`: all of them."""
    mean_up_s: Seconds | None = None
    """Where no times are given, each fails by itself after exponential times of this mean."""
    down_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 60.0
    """Until a replica serves again."""

    @checked
    def _one_law(self) -> None:
        if (self.at_s is None) == (self.mean_up_s is None):
            raise ValueError("faults: expected either at_s, or mean_up_s")
        if self.mean_up_s is not None and self.share is not None:
            raise ValueError("faults.share: stands with at_s, and only there")
        if self.replica is not None and self.share is not None:
            raise ValueError("faults: expected either replica or share")

    def draws(self, many: int, seed: int) -> np.random.Generator:
        """By which it falls on so many."""
        key = (seed, many, 1) if self.of == "host" else (seed, many)
        return np.random.default_rng(key)

    def of_cell(self, cell: int, cells: int, many: int, seed: int) -> list[FaultSpec]:
        """The laws of one of the cells that so many are in together, in which they have numbers of
        their own: who fails is chosen among all, as in one cell."""
        if self.replica is None and self.share is None:
            return [self]
        own = range(cell * many // cells, (cell + 1) * many // cells)
        return [
            self.model_copy(update={"replica": each - own.start, "share": None})
            for each in self.first_s(many, self.draws(many, seed))
            if each in own
        ]

    def first_s(self, many: int, rng: np.random.Generator) -> dict[int, float]:
        """When which of so many fail first."""
        chosen = list(range(many)) if self.replica is None else [self.replica]
        if self.share is not None:
            drawn = rng.choice(many, max(round(self.share * many), 1), replace=False)
            chosen = sorted(drawn.tolist())
        if self.at_s is not None:
            return dict.fromkeys(chosen, self.at_s)
        return {each: self.next_s(0.0, rng) for each in chosen}

    def next_s(self, since_s: float, rng: np.random.Generator) -> float:
        """When one fails that serves again since then; inf: never."""
        if self.mean_up_s is None:
            return np.inf
        return since_s + self.mean_up_s * float(rng.standard_exponential())

"""What a serving description says of the cards of a node."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from hwmodel.description.description import Strict, checked, nearest
from policies.memory.pipeline import PipelineSpec
from policies.routers.routers import ROUTERS
from policies.serving.controllers import (
    CONTROLLERS,
    ControllersByName,
    DroppingChoice,
    LendingChoice,
    MigrationChoice,
)
from policies.serving.moving_options import ControllerOptions

FORMER = {
    "prefix_aware": "prefix",
    "sticky": "session (or prefix with cache_threshold 0 and balance_abs_threshold 1000000, which"
    " follows system prompts as well)",
}  # fmt: skip
"""Routers of earlier versions, and what stands for them."""


def _known(value: str) -> str:
    if value not in ROUTERS and value in FORMER:
        raise ValueError(f"{value} is now {FORMER[value]}")
    if value not in ROUTERS:
        raise ValueError(f"unknown placement; {nearest(value, list(ROUTERS))}")
    return value


class ClusterSpec(Strict):
    """Cards of a node, and how they share the load."""

    renamed = {"fleet": "cells, and serving.faults"}

    cards: Annotated[int, Field(ge=1, le=1024)] = 1
    """Replicas; with `tensor_parallel` or `stages` each of them is several devices."""
    stages: Annotated[int, Field(ge=1, le=1024)] = 1
    """Pipeline stages of a replica, each with its part of the layers and their KV. A replica has as
    many times the sequences and tokens a step that the engine's options say (assumed: those of a
    batch in flight)."""
    pipeline: PipelineSpec | None = None
    """How stages share a step. None: as `PipelineSpec` has it; after a drop by cost, over the same
    link."""
    dropping: DroppingChoice = None
    """Cards drop parameters that others have too where KV overflows. None: they do not."""
    migration: MigrationChoice = None
    """Running requests move from full cards to empty ones. None: they do not."""
    lending: LendingChoice = None
    """Cards keep parts of the KV of each other's requests. None: they do not."""
    controllers: ControllersByName = {}
    """Other controllers by name, each with its options (docs/extend.md)."""
    placement: Annotated[
        str, AfterValidator(_known),
        Field(json_schema_extra=lambda schema: schema.update(enum=list(ROUTERS))),
    ] = next(iter(ROUTERS))  # fmt: skip
    """The router, which says where a request goes: in turn, to the card with the fewest requests,
    to that under the least pressure, to that of its session, to that which was given most of its
    prompt before (`prefix`), to that whose KV holds most of it, weighed with load (`kv_aware`), or
    whose KV holds least; the first of equals."""
    compute_weight: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Of `pressure`: weight of compute pressure; the rest is that of memory (assumed)."""
    cache_threshold: Annotated[float, Field(ge=0, le=1)] = 0.3
    """Of `prefix`: a request goes to the card that was given more than this share of its prompt
    before; where none was, to the one that was given the fewest tokens. The three are SGLang's."""
    balance_abs_threshold: Annotated[int, Field(ge=0)] = 64
    """Of `prefix`: requests that the fullest card may have more than the emptiest. Where it has
    more, and `balance_rel_threshold` times as many, a request goes to the emptiest."""
    balance_rel_threshold: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.5
    """See `balance_abs_threshold`."""
    bounds: Literal["shared", "own"] = "shared"
    """Bucket bounds of one window over the whole node, in step on all cards, or of each card's own
    requests."""

    cells: Annotated[int, Field(ge=1)] = 1
    """Equal parts of the cards, each behind a router of its own, which get the requests in turn.
    They are independent, so workers share them out. 1: one router sees all cards."""

    @checked
    def _once(self) -> None:
        for name in self.controllers.keys() & type(self).model_fields.keys():
            raise ValueError(f"controllers.{name}: stands at cluster.{name}")

    @checked
    def _cells_of_cards(self) -> None:
        if self.cells > 1 and (self.cards % self.cells or self.cards == self.cells):
            raise ValueError(
                f"cells: {self.cells} cells of {self.cards} cards; expected a divisor"
                " that leaves each cell 2 cards or more"
            )

    def behind(self, cards: int, placement: str) -> ClusterSpec:
        """What the router of so many of the cards is told."""
        update = {"cards": cards, "placement": placement, "cells": 1}
        return self.model_copy(update=update)

    @property
    def of_a_cell(self) -> ClusterSpec:
        """One of the equal parts."""
        return self.model_copy(update={"cards": self.cards // self.cells, "cells": 1})

    @property
    def control(self) -> dict[str, ControllerOptions]:
        """Options of all controllers by name, in the order in which they look."""
        own = {"dropping": self.dropping, "migration": self.migration, "lending": self.lending}
        return {name: each for name, each in own.items() if each is not None} | self.controllers

    @property
    def moves(self) -> bool:
        """Whether KV moves between cards while requests run."""
        return any(CONTROLLERS[name].equips for name in self.control)

    @property
    def regroups(self) -> bool:
        """Whether cards may serve together after a while."""
        return any(CONTROLLERS[name].regroups for name in self.control)

    @property
    def kv_frame(self) -> tuple[str, int] | None:
        """The key of a controller that needs KV mapped in frames, and their bytes; None: none
        does."""
        frames = ((f"cluster.{name}", each.kv_frame) for name, each in self.control.items())
        return next(((name, frame) for name, frame in frames if frame is not None), None)

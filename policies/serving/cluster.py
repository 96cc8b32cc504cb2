"""A node: one request stream over several cards, each a replica with memory of its own.

The manager places a request on a card as it arrives, by what is known then (`policies.routers`),
and never moves it.

Where bounds are in step, a card meets new ones as its next steps are scheduled.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field

from hwmodel.description.description import DescriptionError, Strict, checked, nearest
from policies.memory.pipeline import PipelineSpec
from policies.requests.requests import FloatArray, IntArray, Requests
from policies.routers.routers import ROUTERS
from policies.serving.moving_options import DroppingSpec, LendingSpec, MigrationSpec


def _known(value: str) -> str:
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
    dropping: DroppingSpec | None = None
    """Cards drop parameters that others have too where KV overflows. None: they do not."""
    migration: MigrationSpec | None = None
    """Running requests move from full cards to empty ones. None: they do not."""
    lending: LendingSpec | None = None
    """Cards keep parts of the KV of each other's requests. None: they do not."""
    placement: Annotated[
        str, AfterValidator(_known),
        Field(json_schema_extra=lambda schema: schema.update(enum=list(ROUTERS))),
    ] = next(iter(ROUTERS))  # fmt: skip
    """The router, which says where a request goes: in turn, to the card with the fewest requests,
    to that under the least pressure, to that which was given its prefix or session last, where it
    is not too full or always (`sticky`), to that whose KV holds most of it, weighed with load
    (`kv_aware`), or whose KV holds least; the first of equals."""
    compute_weight: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Weight of compute pressure; the rest is that of memory (assumed)."""
    bounds: Literal["shared", "own"] = "shared"
    """Bucket bounds of one window over the whole node, in step on all cards, or of each card's own
    requests."""

    cells: Annotated[int, Field(ge=1)] = 1
    """Equal parts of the cards, each behind a router of its own, which get the requests in turn.
    They are independent, so workers share them out. 1: one router sees all cards."""

    @checked
    def _cells_of_cards(self) -> None:
        if self.cells > 1 and (self.cards % self.cells or self.cards == self.cells):
            raise ValueError(
                f"cells: {self.cells} cells of {self.cards} cards; expected a divisor"
                " that leaves each cell 2 cards or more"
            )

    def grouped(self, stages: int) -> ClusterSpec:
        """How so many cards serve that have dropped parameters."""
        assert self.dropping is not None
        own = self.pipeline or PipelineSpec(link=self.dropping.link, balance="cost")
        return self.model_copy(update={"stages": stages, "pipeline": own})

    @property
    def of_two(self) -> ClusterSpec:
        """Two cards, for a try."""
        return self.model_copy(update={"cards": 2, "cells": 1})

    @property
    def of_a_cell(self) -> ClusterSpec:
        """One of the equal parts."""
        return self.model_copy(update={"cards": self.cards // self.cells, "cells": 1})

    @property
    def moves(self) -> bool:
        """Whether KV moves between cards while requests run."""
        return any(each is not None for each in (self.dropping, self.migration, self.lending))


class Manager:
    """Places requests and tracks the card of each."""

    def __init__(self, spec: ClusterSpec, requests: Requests, predicted: FloatArray) -> None:
        self.spec = spec
        self._tokens = requests.prompt_tokens + requests.samples * predicted
        self.card_of: IntArray = np.full(len(requests), -1, np.int64)
        self.count: IntArray = np.zeros(spec.cards, np.int64)
        """Requests on each card, waiting or running."""
        self.tokens: FloatArray = np.zeros(spec.cards)
        """Tokens that those are predicted to store."""
        self.cards: IntArray = np.arange(spec.cards)
        """Those that serve, in order."""
        self.kv_slots: FloatArray = np.zeros(spec.cards)
        """Slots that each card holds, as it last said, and those that the prompts will
        take which it was given since or had in line."""
        self.cached: Callable[[int, int], int] | None = None
        """`cached(card, request)`: how many of the request's tokens that card has in memory now.
        The driver of the cards sets it."""
        self.requests = requests
        self._router = ROUTERS[spec.placement](spec)
        self._router.manager = self
        self._leaving: list[tuple[float, int]] = []  # ends of steps that may still be under way

    def place(self, request: int, now_s: float) -> int:
        """The card that a request which arrives at `now_s` goes to."""
        while self._leaving and self._leaving[0][0] <= now_s:
            left = heapq.heappop(self._leaving)[1]
            self.count[self.card_of[left]] -= 1
            self.tokens[self.card_of[left]] -= self._tokens[left]
        cards = self.cards
        card = self._router.choose(request, self.count[cards], self.tokens[cards])
        if not 0 <= card < len(cards):
            raise DescriptionError(
                f"placement {self.spec.placement}: expected a card from 0 to "
                f"{len(cards) - 1}; got {card!r}"
            )
        card = int(cards[card])
        self.kv_slots[card] += self.requests.prompt_tokens[request]
        self.card_of[request] = card
        self.count[card] += 1
        self.tokens[card] += self._tokens[request]
        return card

    def move(self, request: int, card: int) -> None:
        """A request goes on there."""
        before, self.card_of[request] = self.card_of[request], card
        self.count[[before, card]] += -1, 1
        self.tokens[[before, card]] += -self._tokens[request], self._tokens[request]

    def serves(self, card: int, again: bool) -> None:
        """A card serves again, or no more."""
        change = np.union1d if again else np.setdiff1d
        self.cards = change(self.cards, [card])
        self.kv_slots[card] = 0.0

    def withdraw(self, requests: list[int]) -> None:
        """These are on no card, until they are placed again."""
        np.subtract.at(self.count, self.card_of[requests], 1)
        np.subtract.at(self.tokens, self.card_of[requests], self._tokens[requests])
        self.card_of[requests] = -1

    def ended(self, requests: list[int], at_s: float) -> None:
        """These leave their cards at `at_s`, the end of a step; until then they count."""
        for request in requests:
            heapq.heappush(self._leaving, (at_s, request))

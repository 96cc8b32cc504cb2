"""A node: one request stream over several cards, each a replica with memory of its own.

The manager places a request on a card as it arrives, by what is known then, and never moves it.
`pressure` is the ODMA paper's idea (compute and memory pressure); how they are measured and weighed
is assumed:

- compute pressure: requests on the card, waiting or running;
- memory pressure: tokens that those are predicted to store, prompts and predicted outputs;

each as a share of the most on any card, and `compute_weight` weighs the two.

Cards advance in the order of their next steps, none past the next arrival. Where bounds are in
step, a card meets new ones as its next steps are scheduled.
"""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator, Field

from hwmodel.description.description import DescriptionError, Strict, checked, nearest
from policies.allocators.capabilities import report_of
from policies.memory.pipeline import PipelineSpec
from policies.requests.requests import FloatArray, IntArray, Requests
from policies.serving.fleet_options import FleetSpec
from policies.serving.moving_options import DroppingSpec, LendingSpec, MigrationSpec
from policies.serving.replica import Replica


class Router(ABC):
    """Where a request goes as it arrives. One of one's own states its `name`."""

    name: ClassVar[str]
    manager: Manager
    """Knows the requests, the `cards` that serve, and their `kv_slots`."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec

    @abstractmethod
    def choose(self, request: int, count: IntArray, tokens: FloatArray) -> int:
        """The card, from 0, of `request`, among those that serve. count: requests on each of them,
        int64 (cards,); tokens: those they are predicted to store, float64 (cards,)."""


class RoundRobin(Router):
    name = "round_robin"
    _next = -1

    def choose(self, request: int, count: IntArray, tokens: FloatArray) -> int:
        self._next += 1
        return self._next % len(count)


class LeastRequests(Router):
    name = "least_requests"

    def choose(self, request: int, count: IntArray, tokens: FloatArray) -> int:
        return int(np.argmin(count))


class Pressure(Router):
    name = "pressure"

    def choose(self, request: int, count: IntArray, tokens: FloatArray) -> int:
        weight = self.spec.compute_weight
        return int(np.argmin(weight * _relative(count) + (1 - weight) * _relative(tokens)))


class PrefixAware(Router):
    """To the card that was last given the request's session, or the longest of its prefixes; to
    the one with the fewest requests where none was, or where that card has `_MORE` more than it
    and `_TIMES` as many.

    The form and both thresholds of SGLang's cache-aware router (lightseekorg/smg,
    docs/getting-started/load-balancing.md), which compares the fullest card instead. What cards
    have lost since is not asked (assumed).
    """

    name = "prefix_aware"
    _MORE: float = 64
    _TIMES = 1.5

    def __init__(self, spec: ClusterSpec) -> None:
        super().__init__(spec)
        self._given: dict[tuple[str, int], int] = {}

    def choose(self, request: int, count: IntArray, tokens: FloatArray) -> int:
        requests, up = self.manager.requests, self.manager.cards
        keys = [("prefix", prefix) for prefix, _ in reversed(requests.prefixes(request))]
        if (session := int(requests.session[request])) >= 0:
            keys.insert(0, ("session", session))
        fewest = int(np.argmin(count))
        known = next((self._given[key] for key in keys if key in self._given), -1)
        chosen = int(np.searchsorted(up, known))
        if known < 0 or chosen == len(up) or up[chosen] != known:
            chosen = fewest
        apart = count[chosen] - count[fewest] > self._MORE
        if apart and count[chosen] > self._TIMES * count[fewest]:
            chosen = fewest
        self._given.update(dict.fromkeys(keys, int(up[chosen])))
        return chosen


class Sticky(PrefixAware):
    """As `prefix_aware`, however many requests that card has."""

    name = "sticky"
    _MORE = math.inf


class KvAware(Router):
    """To the card that holds the fewest slots of KV, prompts in line included."""

    name = "kv_aware"

    def choose(self, request: int, count: IntArray, tokens: FloatArray) -> int:
        return int(np.argmin(self.manager.kv_slots[self.manager.cards]))


ROUTERS: dict[str, type[Router]] = {
    each.name: each for each in (RoundRobin, LeastRequests, Pressure, PrefixAware, KvAware, Sticky)
}


def _known(value: str) -> str:
    if value not in ROUTERS:
        raise ValueError(f"unknown placement; {nearest(value, list(ROUTERS))}")
    return value


class ClusterSpec(Strict):
    """Cards of a node, and how they share the load."""

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
    ] = "round_robin"  # fmt: skip
    """Where a request goes: in turn, to the card with the fewest requests, to that under the
    least pressure, to that which was given its prefix or session last, where it is not too full
    or always (`sticky`), or to that whose KV holds least; the first of equals."""
    compute_weight: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Weight of compute pressure; the rest is that of memory (assumed)."""
    bounds: Literal["shared", "own"] = "shared"
    """Bucket bounds of one window over the whole node, in step on all cards, or of each card's own
    requests."""

    fleet: FleetSpec | None = None
    """Cards advance each by itself between the requests that it gets, and may fail
    (docs/fleet.md). None: all that run are cut at each arrival."""

    @checked
    def _fleet_of_cards(self) -> None:
        if self.fleet is None:
            if ROUTERS[self.placement] is KvAware:
                raise ValueError(f"placement {self.placement}: needs fleet, whose cards report")
            return
        if self.moves:
            raise ValueError("fleet: not with dropping, migration or lending")
        if self.cards % self.fleet.cells or self.cards == self.fleet.cells:
            raise ValueError(
                f"fleet.cells: {self.fleet.cells} cells of {self.cards} cards; expected a divisor"
                " that leaves each cell 2 cards or more"
            )

    @checked
    def _pipeline_of_stages(self) -> None:
        if self.pipeline is not None and self.stages == 1 and self.dropping is None:
            raise ValueError("pipeline: needs stages, 2 or more")
        if self.dropping is not None and (self.cards == 1 or self.stages > 1):
            raise ValueError("dropping: needs 2 cards or more, and stages 1")
        if self.migration is not None and (self.cards == 1 or self.dropping is not None):
            raise ValueError("migration: needs 2 cards or more, and no dropping")
        others = self.stages > 1 or self.dropping is not None or self.migration is not None
        if self.lending is not None and (self.cards == 1 or others):
            raise ValueError(
                "lending: needs 2 cards or more, stages 1, and neither dropping nor migration"
            )

    def grouped(self, stages: int) -> ClusterSpec:
        """How so many cards serve that have dropped parameters."""
        assert self.dropping is not None
        own = self.pipeline or PipelineSpec(link=self.dropping.link, balance="cost")
        return self.model_copy(update={"stages": stages, "pipeline": own})

    @property
    def of_two(self) -> ClusterSpec:
        """Two cards of a fleet that never fail, for a try."""
        return self.model_copy(update={"cards": 2, "fleet": FleetSpec()})

    @property
    def of_a_cell(self) -> ClusterSpec:
        """One of the equal parts of a fleet."""
        assert self.fleet is not None
        alone = self.fleet.model_copy(update={"cells": 1})
        return self.model_copy(update={"cards": self.cards // self.fleet.cells, "fleet": alone})

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
        """Of a fleet: slots that each card holds, as it last said, and those that the prompts will
        take which it was given since or had in line."""
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


class Node:
    """Cards behind a manager. `busy_s`: how long steps took on each card, (cards,). `own`: the
    replicas of the cards by themselves, `built`: all there have been."""

    def __init__(self, replicas: list[Replica], manager: Manager) -> None:
        self.replicas = self.own = self.built = replicas
        self.manager = manager
        self.busy_s: FloatArray = np.zeros(len(replicas))
        self._metrics = replicas[0].metrics

    @property
    def due_s(self) -> float:
        """When something is decided that may move requests."""
        return np.inf

    def serve(
        self,
        requests: IntArray,
        arrival_s: FloatArray,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Serve these requests, in order of arrival, to the last."""
        for request, at_s in zip(requests.tolist(), arrival_s.tolist(), strict=True):
            while self._advance(at_s, len(requests), progress):
                pass
            self.replicas[self.manager.place(request, at_s)].arrive([request], [at_s])
        while self._advance(np.inf, len(requests), progress):
            pass
        last_s = max(replica.now_s for replica in self.replicas)
        for replica in dict.fromkeys(self.replicas):  # cards that are stages have one
            self._metrics.idle(last_s - replica.now_s, replica.stages)

    def _advance(
        self, until_s: float, count: int, progress: Callable[[int, int], None] | None
    ) -> bool:
        """Advance the card whose next step is earliest; False if none begins before `until_s`."""
        card = min(range(len(self.replicas)), key=lambda index: self.replicas[index].next_s)
        replica, before_s = self.replicas[card], self._metrics.sums.seconds
        if replica.next_s >= until_s:
            return False
        together = [each is replica for each in self.replicas]  # cards that are its stages
        ended = replica.advance(until_s, self.due_s)
        self.busy_s[together] += self._metrics.sums.seconds - before_s
        self.manager.ended(ended, replica.now_s)
        if ended and progress is not None:
            progress(self._metrics.ended, count)
        return True

    def report(self, outputs: IntArray) -> dict[str, Any]:
        """What each card did, and how evenly: `imbalance` is the most output tokens of a card over
        the mean, less 1. outputs: int64 (n,), output tokens of each request."""
        each = range(len(self.replicas))
        mine = [self.manager.card_of == card for card in each]
        tokens = [int(outputs[chosen].sum()) for chosen in mine]
        return {
            "cards": [
                {
                    "requests": int(mine[card].sum()),
                    "output_tokens": tokens[card],
                    "busy_s": float(self.busy_s[card]),
                    "preemptions": self.own[card].engine.preemptions,
                    "policy": report_of(self.own[card].engine.allocator),
                }
                for card in each
            ],
            "imbalance": max(tokens) * len(tokens) / max(sum(tokens), 1) - 1,
        }


def mean_of(reports: list[dict[str, Any]], weights: IntArray) -> dict[str, Any]:
    """Reports of cards as one: means of their numbers, each card's with its weight, None where a
    card has none; lists stay with the cards. The mean of half-widths (`ci95`) is the most that
    the mean's own can be."""
    share = weights / max(int(weights.sum()), 1)
    means: dict[str, Any] = {}
    for key, value in reports[0].items():
        values = [report.get(key) for report in reports]
        if None in values:
            means[key] = None
        elif isinstance(value, dict):
            means[key] = mean_of([report[key] for report in reports], weights)
        elif isinstance(value, int | float):
            means[key] = float(share @ np.array(values, np.float64))
        elif isinstance(value, str):
            means[key] = value
    return means


def _relative(values: IntArray | FloatArray) -> FloatArray:
    """Shares of the largest."""
    return values / max(float(values.max()), 1e-300)

"""A node: one request stream over several cards, each a replica with memory of its own.

The manager places a request on a card as it arrives, by what is known then (`policies.routers`),
and never moves it.

Where bounds are in step, a card meets new ones as its next steps are scheduled.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.requests.requests import FloatArray, IntArray, Requests
from policies.routers.router import RouterOptions
from policies.routers.routers import ROUTERS


class Manager:
    """Places requests and tracks the card of each."""

    def __init__(self, spec: RouterOptions, requests: Requests, predicted: FloatArray) -> None:
        self.spec = spec
        self._tokens = requests.prompt_tokens + predicted
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
        self._beams: dict[int, int] = {}
        """The card of the beams of each prompt, which are forked from each other."""
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
        if self.requests.forks[request]:
            card = self._of_beams(request, card)
        self.kv_slots[card] += self.requests.prompt_tokens[request]
        self.card_of[request] = card
        self.count[card] += 1
        self.tokens[card] += self._tokens[request]
        return card

    def _of_beams(self, request: int, card: int) -> int:
        """The card of the other beams of its prompt, if it serves; else the one that was chosen."""
        parent = int(self.requests.parent[request])
        if self._beams.get(parent) not in self.cards:
            self._beams[parent] = card
        return self._beams[parent]

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

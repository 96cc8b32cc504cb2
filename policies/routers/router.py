"""The contract of a router, and what it sees of the cards behind it.

A router is added by one file and one line in `policies.routers.routers`, or by a plug-in
(docs/extend.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Protocol

from policies.requests.requests import FloatArray, IntArray, Requests


class RouterOptions(Protocol):
    """What the description of a cluster says to its router."""

    @property
    def cards(self) -> int:
        """Cards of the cluster."""

    @property
    def placement(self) -> str:
        """The name of the router."""

    @property
    def compute_weight(self) -> float:
        """Weight of requests, from 0 to 1, beside tokens."""

    @property
    def cache_threshold(self) -> float:
        """Share of a prompt, from 0 to 1, that a match has to exceed."""

    @property
    def balance_abs_threshold(self) -> int:
        """Requests that the fullest card may have more than the emptiest."""

    @property
    def balance_rel_threshold(self) -> float:
        """Times that it may have as many."""


class ClusterView(Protocol):
    """What is known of the cards when a request arrives."""

    requests: Requests
    cards: IntArray
    """Those that serve, ascending, int64 (serving,)."""
    kv_slots: FloatArray
    """Slots of KV that each card held when it last reported, and those that prompts in line will
    take, float64 (cards,). Only where the router declares `reports`."""
    cached: Callable[[int, int], int] | None
    """`cached(card, request)`: how many of the request's tokens that card has in memory and would
    not compute again. None: no card can be asked."""


class Router(ABC):
    """Where a request goes as it arrives.

    A router is made anew for each run, and may remember what it chose. The smallest real one:

        class Shortest(Router):
            name = "shortest"

            def choose(self, request, count, tokens):
                return int(tokens.argmin())
    """

    name: ClassVar[str]
    """As `cluster.placement` names it."""
    predicts: ClassVar[bool] = False
    """Whether it reads predicted lengths, so that a request waits for its prediction first."""
    options: ClassVar[tuple[str, ...]] = ()
    """Keys of `cluster` that it reads; those that no router of a run reads are named in its
    metrics."""
    reports: ClassVar[bool] = False
    """Whether it reads `ClusterView.kv_slots`, so that cards have to report."""
    manager: ClusterView
    """What is known of the cards; set before the first `choose`."""

    def __init__(self, spec: RouterOptions) -> None:
        self.spec = spec

    @abstractmethod
    def choose(self, request: int, count: IntArray, tokens: FloatArray) -> int:
        """The place of a card among those that serve (`ClusterView.cards`).

        Args:
            request: the id of the request that arrives.
            count: requests on each of these cards, waiting or running, int64 (serving,).
            tokens: those that they are predicted to store, float64 (serving,).
        """

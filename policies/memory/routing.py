"""Which experts of each layer the tokens of a step pass through, and so which are read.

Expert e is chosen by a token with probability p_e, and these add up to the experts of a token; a
token's experts are drawn by systematic sampling over a random order (Madow 1949), which gives
exactly these probabilities and no expert twice. Tokens are independent (assumed), so that a batch
of T reads sum(1 - (1 - p_e)^T) distinct experts of a layer in the mean; under uniform routing
E (1 - (1 - k/E)^T). Published routers are trained for balance, and tokens of one text are alike;
`skew` covers either.

Where whole experts are on several cards (`CardExperts`), all cards wait in every layer for the one
with most work, and what is read and computed is its. Its mean is that of the card whose mean is the
largest, in closed form, and what a step's fullest card has above it, by a seeded simulation of
`_TOKENS` tokens in each of `_DRAWS` layers: cut into steps of each power of two, interpolated in
the logarithm, and beyond `_TOKENS` with the root of the tokens.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from hwmodel.description.description import Strict
from hwmodel.specs.mlp import CardExperts, ExpertsSpec
from policies.requests.requests import FloatArray, IntArray

_AT_ONCE = 256
"""Tokens drawn together."""
_TOKENS, _DRAWS = 1024, 16
"""Of the simulation of what cards have."""


class RoutingSpec(Strict):
    """How tokens choose experts."""

    skew: Annotated[float, Field(ge=0, le=4)] = 0.0
    """p_e falls as the popularity rank of the expert to this power (Zipf), none above 1; 0:
    uniform. Ranks differ from layer to layer and stay for a run (assumed)."""


class Most(NamedTuple):
    """Means over steps and layers of what the card has that has most of it."""

    distinct: float
    """Experts that tokens pass through."""
    pairs: float
    """Tokens of each of its experts, added up."""
    tokens: float
    """Tokens that pass through any of its experts."""


class Routing:
    """The routing of a run. seed: of the ranks and of the draws."""

    def __init__(
        self,
        experts: ExpertsSpec,
        spec: RoutingSpec | None = None,
        seed: int | tuple[int, ...] = 0,
    ) -> None:
        skew = 0.0 if spec is None else spec.skew
        self.key: tuple[Any, ...] = (experts.count, experts.per_token, skew, seed)
        self._seed, self._cards = seed, experts.on_cards
        if self._cards is not None:
            self.key += (self._cards.cards, self._cards.placement)
        self._share = probabilities(experts.count, experts.per_token, skew)
        self._expected: dict[int, float] = {}
        self._most: dict[int, Most] = {}

    def expected(self, tokens: int) -> float:
        """Mean distinct experts of a layer that `tokens` pass through; of several cards on the one
        with most."""
        if self._cards is not None:
            return self.most(tokens).distinct
        return self.distinct(tokens)

    def distinct(self, tokens: int) -> float:
        """The same on all cards together."""
        if tokens not in self._expected:
            self._expected[tokens] = float((1 - (1 - self._share) ** tokens).sum())
        return self._expected[tokens]

    def chances(self, tokens: int) -> FloatArray:
        """Of each expert of a layer to be read in a step of so many tokens, by rank."""
        chances: FloatArray = 1 - (1 - self._share) ** tokens
        return chances

    def ranked(self, layer: int) -> IntArray:
        """The experts of a layer, most popular first."""
        return self._expert(layer)

    def touched(self, tokens: int, layer: int, draw: int) -> IntArray:
        """Experts of a layer that `tokens` pass through, in order; `draw`: another number draws
        others. Of several cards those on the one with most of them, by their places there."""
        expert, rng = self._expert(layer), self._stream(layer, draw)
        read = np.zeros(len(expert), np.bool_)
        while tokens > 0 and not read.all():
            many = min(tokens, _AT_ONCE)
            read |= _chosen(self._share, many, rng).any(axis=0)
            tokens -= many
        if self._cards is None:
            return np.sort(expert[read]).astype(np.int64)
        owner = self._owner(layer)
        here = owner == np.bincount(owner[read], minlength=self._cards.cards).argmax()
        place = np.cumsum(here) - 1
        if self._cards.placement == "linear":
            place = expert - expert[here].min()
        return np.sort(place[here & read]).astype(np.int64)

    def most(self, tokens: int) -> Most:
        """What the fullest of several cards has in a step of so many tokens."""
        assert self._cards is not None
        if tokens not in self._most:
            on, rates, above = self._load
            size, root = np.log2(max(tokens, 1)), tokens**0.5
            more = [float(np.interp(size, range(len(above)), each)) for each in above.T]
            mean = float((on @ (1 - (1 - self._share) ** tokens)).max(axis=1).mean())
            pairs, touching = (tokens * rates[n] + root * more[n + 1] for n in range(2))
            k, held = self._cards.per_token, self._cards.held
            self._most[tokens] = Most(
                min(mean + more[0], held, tokens * k),
                min(pairs, tokens * min(k, held)),
                min(touching, tokens),
            )
        return self._most[tokens]

    @cached_property
    def _load(self) -> tuple[FloatArray, tuple[float, float], FloatArray]:
        """(which ranks each card has, (layers, cards, experts); pairs and tokens a token, of the
        fullest card of each layer; what a step's fullest card has above that, by powers of two of
        tokens: experts, and pairs and tokens over their root)."""
        cards = self._cards
        assert cards is not None
        layers = [layer for layer in range(cards.layers) if cards.at(layer)]
        owner = np.array([self._owner(layer) for layer in layers])
        on = (owner[:, None] == np.arange(cards.cards)[:, None]).astype(np.float64)
        pairs = (on @ self._share).max(axis=1)
        rng = self._stream(*b"cards")
        steps = [1 << n for n in range(_TOKENS.bit_length())]
        touching, above = 0.0, np.zeros((len(steps), 3))
        for draw in range(_DRAWS):
            layer = draw % len(layers)
            chosen = _chosen(self._share, _TOKENS, rng)
            counts = chosen @ on[layer].T  # (tokens, cards)
            rate = float((counts > 0).mean(axis=0).max())
            touching += rate / _DRAWS
            for row, tokens in enumerate(steps):
                shape = (_TOKENS // tokens, tokens, -1)
                seen = chosen.reshape(shape).any(axis=1) @ on[layer].T
                mean = (on[layer] @ (1 - (1 - self._share) ** tokens)).max()
                parts = counts.reshape(shape)
                most = [each.sum(axis=1).max(axis=1).mean() for each in (parts, parts > 0)]
                above[row] += (
                    seen.max(axis=1).mean() - mean,
                    (most[0] - tokens * pairs[layer]) / tokens**0.5,
                    (most[1] - tokens * rate) / tokens**0.5,
                )
        return on, (float(pairs.mean()), touching), above / _DRAWS

    def _stream(self, *key: int) -> np.random.Generator:
        key = (*b"policies.experts", *key)
        return np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=key))

    def _expert(self, layer: int) -> IntArray:
        """The expert of each rank."""
        return self._stream(layer).permutation(len(self._share))

    def _owner(self, layer: int) -> IntArray:
        """The card of the expert of each rank."""
        assert self._cards is not None
        return owners(self._cards, self._share, self._expert(layer))


def owners(experts: CardExperts, share: FloatArray, expert: IntArray) -> IntArray:
    """The card of each expert, which are in order of their shares, int64 (experts,)."""
    each, more = divmod(experts.count, experts.cards)
    room = each + (np.arange(experts.cards) < more)
    if experts.placement == "linear":
        return np.repeat(np.arange(experts.cards), room)[expert]
    load, found = np.zeros(experts.cards), np.empty(experts.count, np.int64)
    for rank in range(experts.count):
        found[rank] = card = int(np.where(room > 0, load, np.inf).argmin())
        load[card] += share[rank]
        room[card] -= 1
    return found


def _chosen(share: FloatArray, tokens: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which experts, by rank, each token passes through, (tokens, experts)."""
    order = rng.permuted(np.tile(np.arange(len(share)), (tokens, 1)), axis=1)
    ends = np.cumsum(share[order], axis=1)
    # a point each whole step from a random start: the experts whose share has one
    passed = np.floor(ends + rng.random((tokens, 1)))
    chosen = np.empty(order.shape, np.bool_)
    np.put_along_axis(chosen, order, np.diff(passed, axis=1, prepend=0.0) > 0, axis=1)
    return chosen


def probabilities(count: int, per_token: int, skew: float) -> FloatArray:
    """Probability that a token passes through each expert, by rank; they add up to `per_token`."""
    weight = np.arange(1, count + 1, dtype=np.float64) ** -skew
    for sure in range(per_token + 1):
        rest = (per_token - sure) * weight[sure:] / weight[sure:].sum()
        if not len(rest) or rest[0] <= 1:
            break
    return np.concatenate((np.ones(sure), rest))

"""To the card that was given most of the prompt before, while loads are even: SGLang's cache-aware
router.

SMG's `cache_aware` (lightseekorg/smg 6fcadf9, docs/configuration/routing.md), whose names and
defaults the options have. It keeps a tree of the prompts that each card was given:

1. Where the fullest card has `balance_abs_threshold` requests more than the emptiest, and
   `balance_rel_threshold` times as many: to the emptiest.
2. Else, where more than `cache_threshold` of the prompt was given to some card: to that card.
3. Else to the card with the smallest tree.

Its trees forget by age beyond 2^26 characters; here they forget a card that fails, and nothing else
(assumed). Of equal matches the card that was given it last is taken (assumed).
"""

from __future__ import annotations

import numpy as np

from policies.requests.requests import FloatArray, IntArray
from policies.routers.router import Router, RouterOptions

Text = tuple[str, int]
"""What prompts may begin with: a shared prefix, a session's text, a prompt of several samples."""


class Prefix(Router):
    """See the module."""

    name = "prefix"
    options = ("cache_threshold", "balance_abs_threshold", "balance_rel_threshold")

    def __init__(self, spec: RouterOptions) -> None:
        super().__init__(spec)
        self._given: dict[Text, dict[int, int]] = {}
        """Cards that were given a text, the last one last, and how many tokens of it."""
        self._size: IntArray = np.zeros(spec.cards, np.int64)
        """Tokens of each card's tree."""
        self._up: IntArray = np.arange(spec.cards)

    def choose(self, request: int, count: IntArray, tokens: FloatArray) -> int:
        up, spec = self.manager.cards, self.spec
        if len(up) != len(self._up) or (up != self._up).any():
            self._forget(up)
        texts = self._texts(request)
        least, most = int(count.min()), int(count.max())
        uneven = most - least > spec.balance_abs_threshold
        if uneven and most > spec.balance_rel_threshold * least:
            place = int(np.argmin(count))
        else:
            place = self._place(texts, int(self.manager.requests.prompt_tokens[request]))
        self._insert(texts, int(up[place]), request)
        return place

    def _texts(self, request: int) -> dict[Text, int]:
        """What the prompt begins with, the longest first, and how many of its tokens that is."""
        requests = self.manager.requests
        prompt = int(requests.prompt_tokens[request])
        texts: dict[Text, int] = {}
        for name, column in (("sample", requests.parent), ("session", requests.context)):
            if (number := int(column[request])) >= 0:
                texts[name, number] = prompt
        for prefix, tokens_in in reversed(requests.prefixes(request)):
            texts["prefix", prefix] = tokens_in
        return texts

    def _place(self, texts: dict[Text, int], prompt: int) -> int:
        matched, card = 0, -1
        for text, most in texts.items():
            given = enumerate(self._given.get(text, {}).items())
            shared = [(min(had, most), order, other) for order, (other, had) in given]
            if shared and max(shared)[0] > matched:
                matched, _, card = max(shared)
        if card >= 0 and matched > self.spec.cache_threshold * prompt:
            return int(np.searchsorted(self._up, card))
        return int(np.argmin(self._size[self._up]))

    def _insert(self, texts: dict[Text, int], card: int, request: int) -> None:
        prompt, known = int(self.manager.requests.prompt_tokens[request]), 0
        for text, most in texts.items():
            given = self._given.setdefault(text, {})
            had = given.pop(card, 0)
            known = max(known, min(had, most))
            given[card] = max(had, most)
        self._size[card] += prompt - known

    def _forget(self, up: IntArray) -> None:
        """Cards that fail have lost all that they were given."""
        gone = np.setdiff1d(self._up, up)
        self._up, self._size[gone] = up.copy(), 0
        for given in self._given.values():
            for card in gone.tolist():
                given.pop(card, None)

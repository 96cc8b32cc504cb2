"""Token ids for requests that are known by their lengths, so that vLLM's prefix caching finds what
they have in common and nothing else."""

from __future__ import annotations

import numpy as np

from policies.requests.requests import IntArray, Requests

STOP = 1
"""The token that ends an answer; no text has it elsewhere."""
_IDS = 100, 1 << 30
"""Ids are drawn from here, far above any vocabulary, so that no two blocks are alike by chance;
vLLM's scheduler does not ask how large the vocabulary is."""
_PREFIX, _PROMPT, _SAMPLED, _ANSWER = range(4)


class Texts:
    """Of `requests`, whose answers have `output` tokens, int64 (n,). A text is drawn by what it
    belongs to, so that it is the same whenever it is asked for.

    A prompt begins with what `Requests.prefixes` says, or with the prompt and the answer of the
    turn before it; samples of one prompt have all of it in common. stops: answers end with `STOP`.
    """

    def __init__(self, requests: Requests, output: IntArray, stops: bool) -> None:
        self._of, self._output, self._stops = requests, output, stops
        self._before = np.where(requests.context >= 0, requests.turn_before, -1)

    def prompt(self, request: int) -> list[int]:
        """Ids of its prompt."""
        count, parent = int(self._of.prompt_tokens[request]), int(self._of.parent[request])
        whose = (_PROMPT, request) if parent < 0 else (_SAMPLED, parent)
        tokens = _drawn(*whose, count)
        for prefix, end in reversed(self._of.prefixes(request)):  # the root of the tree last
            tokens[:end] = _drawn(_PREFIX, prefix, end)
        if (turn := int(self._before[request])) >= 0:
            whole = self.prompt(turn) + self.answer(turn)
            tokens[: len(whole)] = whole
        return tokens

    def answer(self, request: int) -> list[int]:
        """Ids of its answer."""
        tokens = _drawn(_ANSWER, request, int(self._output[request]))
        if self._stops:
            tokens[-1] = STOP
        return tokens


def _drawn(kind: int, owner: int, count: int) -> list[int]:
    """The first so many tokens of a text, of which a longer one goes on."""
    drawn: list[int] = np.random.default_rng((kind, owner)).integers(*_IDS, count).tolist()
    return drawn

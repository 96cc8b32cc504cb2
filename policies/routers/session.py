"""Session affinity: a session stays on its card, and a new one goes to the card with the fewest
requests.

SMG's `manual` policy with `--assignment-mode min_load` (lightseekorg/smg 6fcadf9,
docs/configuration/routing.md): what prompts have in common is not looked at, so that sessions with
one system prompt spread over all cards.
"""

from __future__ import annotations

import numpy as np

from policies.requests.requests import FloatArray, IntArray
from policies.routers.router import Router, RouterOptions


class Session(Router):
    """To the card that has the request's session, whatever its load; to the one with the fewest
    requests where the session is new, has lost its card, or there is none."""

    name = "session"

    def __init__(self, spec: RouterOptions) -> None:
        super().__init__(spec)
        self._card_of: dict[int, int] = {}

    def choose(self, request: int, count: IntArray, tokens: FloatArray) -> int:
        up, session = self.manager.cards, int(self.manager.requests.session[request])
        card = self._card_of.get(session, -1)
        place = int(np.searchsorted(up, card))
        if card < 0 or place == len(up) or up[place] != card:
            place = int(np.argmin(count))
        if session >= 0:
            self._card_of[session] = int(up[place])
        return place

"""Clients who send when they are answered: of a closed loop the next request when one has ended, of
a session its next turn after the last answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from policies.requests.requests import FloatArray, IntArray, Requests
from policies.serving.source import Source


class Clients(Source):
    """Who sends what in a closed loop: the next turn of a session after its last one, and others by
    the client that was answered last. `think_s` of the requests is the time until then."""

    def __init__(self, requests: Requests, admitted: IntArray, ready_s: FloatArray) -> None:
        self.count = len(admitted)
        self._think_s = requests.think_s
        clients = int(np.isnan(requests.think_s).sum())
        before = requests.take(admitted).turn_before
        later = before >= 0
        pairs = zip(admitted[before[later]].tolist(), admitted[later].tolist(), strict=True)
        self._following, firsts = dict(pairs), admitted[~later]
        self._to_send = deque(firsts[clients:].tolist())
        begins_s = requests.arrival_s[firsts[:clients]]
        self._sessions = bool((requests.session >= 0).any())
        self._last_s = float(begins_s.max(initial=0.0))
        self._announce(firsts[:clients], begins_s)

    @classmethod
    def sends(cls, requests: Requests) -> bool:
        return requests.closed

    @property
    def more(self) -> bool:  # type: ignore[override]
        """Whether there are requests that no client has taken."""
        return bool(self._to_send)

    @property
    def steady_s(self) -> float | None:
        if not self._sessions:
            return None
        return np.inf if self._to_send else self._last_s

    def after(self, ended: list[int], now_s: float) -> Iterator[tuple[int, float]]:
        for done in ended:
            request = self._following.get(done, -1)
            if request < 0:
                if not self._to_send:
                    continue
                request = self._to_send.popleft()
            yield request, now_s + float(self._think_s[request])

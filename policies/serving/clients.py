"""Clients of a closed loop, and sessions: what is sent when an answer has come."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from policies.requests.requests import FloatArray, IntArray, Requests


class Clients:
    """Who sends what in a closed loop: the next turn of a session after its last one, and others by
    the client that was answered last. `to_send`: requests that no client has taken."""

    def __init__(self, admitted: IntArray, requests: Requests) -> None:
        self._think_s, self._requests = requests.think_s, requests
        self._clients = int(np.isnan(requests.think_s).sum())
        before = requests.take(admitted).turn_before
        later = before >= 0
        pairs = zip(admitted[before[later]].tolist(), admitted[later].tolist(), strict=True)
        self._following, self._firsts = dict(pairs), admitted[~later]
        self.to_send = deque(self._firsts[self._clients :].tolist())

    def first(self) -> tuple[IntArray, FloatArray]:
        """What clients send first, and when."""
        chosen = self._firsts[: self._clients]
        return chosen, self._requests.arrival_s[chosen]

    def after(self, ended: list[int], now_s: float) -> Iterator[tuple[int, float]]:
        """What they send, and when, as these end."""
        for done in ended:
            request = self._following.get(done, -1)
            if request < 0:
                if not self.to_send:
                    continue
                request = self.to_send.popleft()
            yield request, now_s + float(self._think_s[request])

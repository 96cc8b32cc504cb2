"""Where requests come from: arrivals that are known, or clients who send when they are answered.

Open arrivals and traces are announced from the start. Clients of a closed loop send their next
request when one has ended, and the next turn of a session follows its last answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from policies.requests.requests import FloatArray, IntArray, Requests


class Source:
    """Requests that arrive at times that are known. `admitted`: which of `requests` are served;
    `ready_s`: when each of all can be, float64 (n,)."""

    more = False
    """Whether requests will come that nobody has announced."""

    def __init__(self, requests: Requests, admitted: IntArray, ready_s: FloatArray) -> None:
        self.count = len(admitted)
        """Requests that will end."""
        self._announce(admitted, ready_s[admitted])

    def _announce(self, chosen: IntArray, at_s: FloatArray) -> None:
        order = np.argsort(at_s, kind="stable")
        self._coming = deque(zip(at_s[order].tolist(), chosen[order].tolist(), strict=True))

    def next(self) -> tuple[float, int] | None:
        """The next arrival that is announced, once: (when, request); None: there is none."""
        return self._coming.popleft() if self._coming else None

    @property
    def steady_s(self) -> float | None:
        """Of sessions: when the last one begins, until which the load is steady; inf if that is not
        known. None: the load is steady while requests wait or come."""
        return None

    def after(self, ended: list[int], now_s: float) -> Iterator[tuple[int, float]]:
        """Requests that are sent, and when, as these end."""
        yield from ()


class Clients(Source):
    """Who sends what in a closed loop: the next turn of a session after its last one, and others by
    the client that was answered last. `think_s` of the requests is the time until then."""

    def __init__(self, requests: Requests, admitted: IntArray) -> None:
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

    @property
    def more(self) -> bool:  # type: ignore[override]
        """Whether there are requests that no client has taken."""
        return bool(self._to_send)

    @property
    def steady_s(self) -> float | None:
        """See `Source.steady_s`."""
        if not self._sessions:
            return None
        return np.inf if self._to_send else self._last_s

    def after(self, ended: list[int], now_s: float) -> Iterator[tuple[int, float]]:
        """See `Source.after`."""
        for done in ended:
            request = self._following.get(done, -1)
            if request < 0:
                if not self._to_send:
                    continue
                request = self._to_send.popleft()
            yield request, now_s + float(self._think_s[request])


def source_of(requests: Requests, admitted: IntArray, ready_s: FloatArray) -> Source:
    """Clients where requests hang on each other, else arrivals at these times."""
    return Clients(requests, admitted) if requests.closed else Source(requests, admitted, ready_s)

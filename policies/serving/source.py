"""Where requests come from."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from policies.requests.requests import FloatArray, IntArray, Requests


class Source:
    """Base of all sources: requests that arrive at times that are known. `admitted`: which of
    `requests` are served; `ready_s`: when each of all can be, float64 (n,). A source is added by
    one file and one line in `policies.serving.sources`."""

    more = False
    """Whether requests will come that nobody has announced."""

    def __init__(self, requests: Requests, admitted: IntArray, ready_s: FloatArray) -> None:
        self.count = len(admitted)
        """Requests that will end."""
        self._announce(admitted, ready_s[admitted])

    @classmethod
    def sends(cls, requests: Requests) -> bool:
        """Whether such requests come from a source of this kind."""
        return False

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

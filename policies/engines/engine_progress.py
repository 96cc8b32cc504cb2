"""Whether an engine gets anywhere: output tokens are made, whatever it preempts."""

from __future__ import annotations

from collections import Counter

from policies.requests.requests import IntArray

MOST_FUTILE = 1000
"""Preemptions, or empty steps, without an output token after which an engine gives up (assumed):
one that goes on makes a token in nearly every step, whatever it preempts."""


class TokenProgress:
    """Of an engine that runs `sequences` requests at most. It is asked with the output tokens to
    come, int64 (n,), of all requests."""

    def __init__(self, sequences: int) -> None:
        self._most = max(MOST_FUTILE, 4 * sequences)
        self._futile: Counter[int] = Counter()
        """Preemptions of each request since they were judged last."""
        self._preemptions = self._idle_steps = 0
        self._left_then = self._left_idle = -1  # at the last judgement of each

    def preempted(self, request: int, left: IntArray) -> str | None:
        """A request is preempted; what is wrong where nothing else has happened for long:
        `MOST_FUTILE` preemptions, or four a sequence, and no output token of any request."""
        self._preemptions += 1
        self._futile[request] += 1
        if self._preemptions % self._most:
            return None
        now, before = int(left.sum()), self._left_then
        self._left_then = now
        if now == before:
            request, times = self._futile.most_common(1)[0]
            return f"request {request} was preempted {times} times without progress"
        self._futile.clear()
        return None

    def idle(self, left: IntArray) -> str | None:
        """Nothing was scheduled in a step; what is wrong where that is so `MOST_FUTILE` times and
        no output token was made."""
        self._idle_steps += 1
        if self._idle_steps % MOST_FUTILE:
            return None
        now, before = int(left.sum()), self._left_idle
        self._left_idle = now
        return f"nothing was scheduled in {MOST_FUTILE} steps" if now == before else None

"""Clients who send when they are answered: of a closed loop the next request when one has ended, of
a session its next turn after the last answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from policies.requests.requests import FloatArray, IntArray, Requests, turns_before
from policies.serving.source import Source


class Clients(Source):
    """Who sends what in a closed loop: the next turn of a session after its last one, and others by
    the client that was answered last. `think_s` of the requests is the time until then."""

    def __init__(self, requests: Requests, admitted: IntArray, ready_s: FloatArray) -> None:
        self.count = len(admitted)
        self._think_s, self._parent = requests.think_s, requests.parent
        first = first_of_prompt(requests)
        clients = int((np.isnan(requests.think_s) & first).sum())
        self._samples: dict[int, list[int]] = {}
        """By their parent, the samples of a prompt: they are sent together."""
        for request in admitted[requests.parent[admitted] >= 0].tolist():
            self._samples.setdefault(int(requests.parent[request]), []).append(request)
        self._unanswered = {parent: len(each) for parent, each in self._samples.items()}
        sent = admitted[first[admitted]]
        before = turns_before(requests.session[sent])
        later = before >= 0
        pairs = zip(sent[before[later]].tolist(), sent[later].tolist(), strict=True)
        self._following, firsts = dict(pairs), sent[~later]
        self._to_send = deque(firsts[clients:].tolist())
        begins = [each for head in firsts[:clients].tolist() for each in self._all_of(head)]
        begins_s = requests.arrival_s[begins]
        self._sessions = bool((requests.session >= 0).any())
        self._last_s = float(begins_s.max(initial=0.0))
        self._announce(np.array(begins, np.int64), begins_s)

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
            if (parent := int(self._parent[done])) >= 0:
                self._unanswered[parent] -= 1
                if self._unanswered[parent]:
                    continue  # the client waits for all answers
            request = self._following.get(done, -1)
            if request < 0:
                if not self._to_send:
                    continue
                request = self._to_send.popleft()
            for each in self._all_of(request):
                yield each, now_s + float(self._think_s[each])

    def _all_of(self, request: int) -> list[int]:
        """All samples of the prompt that a request is the first of."""
        return self._samples.get(int(self._parent[request]), [request])


def first_of_prompt(requests: Requests) -> NDArray[np.bool_]:
    """Whether each request is the only one of its prompt, or the first of its samples, which lie
    side by side; bool (n,)."""
    parent = requests.parent
    first = np.ones(len(parent), np.bool_)
    first[1:] = (parent[1:] < 0) | (parent[1:] != parent[:-1])
    return first

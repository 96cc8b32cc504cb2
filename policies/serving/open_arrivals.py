"""Open arrivals and traces, all of which are announced from the start."""

from __future__ import annotations

from policies.requests.requests import Requests
from policies.serving.source import Source


class OpenArrivals(Source):
    """Requests that come whatever becomes of those before."""

    @classmethod
    def sends(cls, requests: Requests) -> bool:
        return not requests.closed

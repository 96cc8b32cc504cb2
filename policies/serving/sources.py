"""The sources that a stream of requests can come from. To add one, add a line here."""

from __future__ import annotations

from hwmodel.description.description import DescriptionError
from policies.requests.requests import FloatArray, IntArray, Requests
from policies.serving.clients import Clients
from policies.serving.open_arrivals import OpenArrivals
from policies.serving.source import Source

SOURCES: dict[str, type[Source]] = {
    "open": OpenArrivals,
    "clients": Clients,
}
"""The first that sends such requests is asked for them."""


def source_of(requests: Requests, admitted: IntArray, ready_s: FloatArray) -> Source:
    """The source of a stream. Raises DescriptionError where none is registered that sends it."""
    for kind in SOURCES.values():
        if kind.sends(requests):
            return kind(requests, admitted, ready_s)
    how = "wait for answers" if requests.closed else "arrive at given times"
    raise DescriptionError(f"no source of requests that {how} is registered")

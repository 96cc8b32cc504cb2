"""To the card that was given the request's session or prefix last, however full it is."""

from __future__ import annotations

import math

from policies.routers.given_before import GivenBefore


class Sticky(GivenBefore):
    """As `GivenBefore`, however many requests that card has."""

    name = "sticky"
    more = math.inf
    times = math.inf

"""To the card that was given the request's session or prefix last, however full it is."""

from __future__ import annotations

import math

from policies.routers.prefix_aware import PrefixAware


class Sticky(PrefixAware):
    """As `prefix_aware`, however many requests that card has."""

    name = "sticky"
    more = math.inf

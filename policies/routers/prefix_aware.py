"""To the card that was given the request's prefix last, unless it has too many requests.

The form and both thresholds of SGLang's cache-aware router (lightseekorg/smg,
docs/getting-started/load-balancing.md), which compares the fullest card instead.
"""

from __future__ import annotations

from policies.routers.given_before import GivenBefore


class PrefixAware(GivenBefore):
    """As `GivenBefore`, with SGLang's thresholds."""

    name = "prefix_aware"
    more = 64
    times = 1.5

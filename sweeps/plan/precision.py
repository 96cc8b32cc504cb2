"""`precision: 4%` of a sweep: how often it is repeated, and how much of its memory is simulated,
for intervals of about this half-width."""

from __future__ import annotations

import math
from typing import Any, Final

from hwmodel.description.description import DescriptionError, Document, KeyPath
from hwmodel.measure.student import t_quantile

SPREAD: Final = 0.037
"""Standard deviation, between replications, of the logarithm of the ratio of two competitors on the
same 1,000 requests; it falls with the root of their number (assumed). Three in four of 238 ratios
of docs/release/results have less, half of them 0.021; one in ten has more than 0.063."""
SAMPLING: Final = 1 / 4
"""Of the half-width that is wanted, what sampling of memory may be off by (assumed): it adds 3 % to
the interval."""
PROBES: Final = ((0.025, "1MiB", 4), (0.01, "2MiB", 6), (0.0075, "4MiB", 12))
"""How far off a throughput may be that is found with so many probes of so many bytes, and these;
with the defaults of a sampled memory less (`tests/sweeps/yaml/probe-ladder.yaml`)."""
FEWEST, MOST = 3, 50
"""Replications."""
REQUESTS = 1000
"""That `SPREAD` is of."""
_BASE: KeyPath = ("base",)
_MEMORY: KeyPath = (*_BASE, "serving", "memory")


def replications_for(half: float, requests: int) -> int:
    """The fewest replications whose Student's interval of a ratio has this relative half-width, if
    competitors differ by `SPREAD`. Raises ValueError where these are more than `MOST`."""
    spread = SPREAD * math.sqrt(REQUESTS / requests)
    for count in range(FEWEST, MOST + 1):
        if t_quantile(count - 1) * spread / math.sqrt(count) <= half:
            return count
    enough = math.ceil(REQUESTS * (t_quantile(MOST - 1) * SPREAD / half) ** 2 / MOST)
    raise ValueError(
        f"{half:.2g} of {requests} requests would take more than {MOST} replications:"
        f" expected more, or requests: {enough}"
    )


def probes_for(half: float) -> tuple[str, int] | None:
    """`probe_bytes` and `max_probes` of the cheapest sampling that leaves a throughput uncertain by
    at most `SAMPLING` of this relative half-width; None: the defaults."""
    fit = [(size, many) for error, size, many in PROBES if error <= SAMPLING * half]
    return fit[0] if fit else None


def written_out(document: Document, half: float | None) -> bool:
    """Replace `precision` by the numbers that it stands for, but for those that are given; whether
    it was there. Raises DescriptionError where it cannot choose."""
    if half is None:
        return False
    mark = document.mark(("precision",))
    chosen: dict[KeyPath, Any] = {}
    if document.get((*_BASE, "replications")) is None:
        requests = document.get((*_BASE, "requests"))
        if not isinstance(requests, int):
            raise document.error("expected base.requests, on which it hangs", ("precision",))
        try:
            chosen[*_BASE, "replications"] = replications_for(half, requests)
        except ValueError as error:
            raise document.error(str(error), ("precision",)) from None
    sampled = document.get((*_MEMORY, "fidelity")) == "sampled"
    if sampled and (probes := probes_for(half)) is not None:
        pairs = zip(("probe_bytes", "max_probes"), probes, strict=True)
        chosen |= {(*_MEMORY, key): value for key, value in pairs}
    lacking = {path: value for path, value in chosen.items() if document.get(path) is None}
    if not lacking and (mark.file or "").startswith("--set "):
        why = "replications and probes are given, so that nothing is left to choose"
        raise DescriptionError(why, mark.file, mark.line, "precision")
    for path, value in lacking.items():
        document.put(path, value, mark)
    del document.data["precision"]
    return True

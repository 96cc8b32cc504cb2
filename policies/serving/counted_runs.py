"""How many simulations of this process the compiled core served, and why not the others."""

from __future__ import annotations

from collections import Counter

RUNS: Counter[str] = Counter()
"""Simulations by why they went the general way (`policies.serving.plain`); '': they did not."""


def summary() -> str:
    """These in words."""
    general = [f"{why} {many}" for why, many in RUNS.most_common() if why]
    text = f"{RUNS.total()} simulations, {RUNS['']} of them by the compiled core"
    return f"{text}; not: {', '.join(general)}" if general else text

"""Student's t: the quantile that every interval of a mean rests on."""

from __future__ import annotations

from functools import lru_cache

LEVEL = 0.95
"""Confidence of every interval that is reported."""


@lru_cache(maxsize=256)
def t_quantile(freedom: int, level: float = LEVEL) -> float:
    """The t with `level` of Student's distribution between -t and t (that of scipy.stats, without
    the seconds that importing it takes). Raises ValueError below one degree of freedom."""
    from scipy.special import stdtrit  # heavy

    if freedom < 1:
        raise ValueError(f"expected at least 1 degree of freedom; got {freedom}")
    return float(stdtrit(freedom, (1 + level) / 2))

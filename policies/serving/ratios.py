"""Amounts over times: rates, means and shares."""

from __future__ import annotations

from policies.requests.requests import FloatArray


def rate(amount: float, seconds: float) -> float:
    """0 where no time passed."""
    return amount / seconds if seconds > 0 else 0.0


def mean(values: FloatArray) -> float:
    """0 of none."""
    return float(values.mean()) if len(values) else 0.0


def shares(seconds: dict[str, float]) -> dict[str, float]:
    """Of their sum."""
    total = sum(seconds.values())
    return {name: rate(value, total) for name, value in seconds.items()}

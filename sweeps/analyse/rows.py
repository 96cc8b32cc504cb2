"""Rows of results as plain data: what lies under a path, flat names, what differs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Record = dict[str, Any]


def at(data: Any, *keys: str) -> Any:
    """What lies under these keys, None where nothing does."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def is_number(value: Any) -> bool:
    """Whether this is a number, and not a truth value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every place where two plain structures differ: (dotted path, ours, theirs)."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in dict.fromkeys([*ours, *theirs]):
            inner = f"{path}.{key}" if path else str(key)
            yield from differences(ours.get(key), theirs.get(key), inner)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(a, b, f"{path}[{i}]")
    elif ours != theirs:
        yield path, ours, theirs


def flat(metrics: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested metrics under dotted names."""
    found: dict[str, Any] = {}
    for key, value in metrics.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found

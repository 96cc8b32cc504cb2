"""Short names of the values of axes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

NAMED = ("dataset", "assumption")
"""Axes whose values have names of their own, which tell them apart."""


def label(value: Any) -> str:
    """A short name of an axis value: a file's stem, a mapping's name and options (empty:
    `defaults`), or its text."""
    if isinstance(value, dict):
        rest = (f"{key}={label(item)}" for key, item in value.items() if key != "name")
        return " ".join([*([str(value["name"])] if "name" in value else []), *rest]) or "defaults"
    text = str(value)
    return Path(text).name.split(".")[0] if "/" in text and Path(text).suffix else text


def named(axis: str, value: Any) -> str:
    """A short name of a value of this axis: its own where the axis has such, else its label."""
    if axis in NAMED and isinstance(value, dict) and "name" in value:
        return str(value["name"])
    return label(value)


def titled(axis: str, value: Any) -> str:
    """`named`, with the axis before it where that is but a number."""
    text = named(axis, value)
    return text if any(map(str.isalpha, text)) else f"{axis.split('.')[-1]} {text}"


def title(overrides: dict[str, Any], control: str) -> str:
    """A point in a few words."""
    words = [named(*item) for item in overrides.items()]
    return ", ".join([*words, control] if control else words)

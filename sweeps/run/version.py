"""Which bankwise this is."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """The installed version, `unknown` where it runs without being installed."""
    try:
        return metadata.version("bankwise")
    except metadata.PackageNotFoundError:
        return "unknown"

"""The energy of a memory: of its commands, of its bytes, and of standing by."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from hwmodel.description.description import Strict
from hwmodel.description.units import Milliwatts, Picojoules
from hwmodel.description.written import TEXT_TOO


class Background(Strict):
    """Standby power of a rank with all its banks closed, and with one open at least; the same in
    power-down; and in self-refresh and deep sleep, refreshes included."""

    precharged: Milliwatts
    """With all rows closed."""
    active: Milliwatts
    """With a row open."""
    power_down_precharged: Milliwatts | None = None
    """In power-down, rows closed."""
    power_down_active: Milliwatts | None = None
    """In power-down, a row open."""
    self_refresh: Milliwatts | None = None
    """In self-refresh."""
    deep_sleep: Milliwatts | None = None
    """In deep sleep."""


def _both_states(value: object) -> object:
    return {"precharged": value, "active": value} if isinstance(value, (str, int, float)) else value


class Energy(Strict):
    """Energy of one channel: per activation, per byte moved, per bank refreshed, and standby."""

    activate: Picojoules
    """Of opening a row and closing it."""
    read_per_byte: Picojoules
    """Of a byte read."""
    write_per_byte: Picojoules
    """Of a byte written."""
    refresh_per_bank: Picojoules
    """Of refreshing a bank once."""
    background: Annotated[Background, BeforeValidator(_both_states), TEXT_TOO]
    """A single power (`background: 61.4mW`) stands for both states."""

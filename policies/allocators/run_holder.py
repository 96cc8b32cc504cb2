"""What the parts of an allocator of runs may ask of it (`reservation.py`)."""

from __future__ import annotations

from typing import Any, Protocol

from policies.allocators.allocator import Demand, Limits
from policies.allocators.arena import Arena
from policies.allocators.kv_layout import KvLayout
from policies.requests.requests import IntArray


class RunHolder(Protocol):
    """An allocator whose reservations are runs of slots; arrays by request are as in `Allocator`,
    and `start` says where the run of each begins."""

    layout: KvLayout
    limits: Limits
    options: Any
    start: IntArray
    stored: IntArray
    reserved: IntArray
    resident: Any
    pinned: set[int]
    demands: dict[int, Demand]
    fresh: set[int]
    filling: set[int]

    @property
    def reserved_total(self) -> int: ...
    @reserved_total.setter
    def reserved_total(self, slots: int) -> None: ...
    def require(self, request: int) -> None: ...
    def size(self, request: int, demand: Demand) -> int: ...
    def receive(self, request: int, demand: Demand, tokens: int) -> bool: ...
    def release(self, request: int) -> int: ...
    def slots_for(self, tokens: Any) -> Any: ...
    def room_in(self, slots: Any) -> Any: ...
    def make_room(self, arena: Arena, size: int) -> bool: ...
    def overwrite(self, start: int, size: int) -> None: ...

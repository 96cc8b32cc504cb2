"""The description of a memory controller: queues, arbitration, pages, refresh, address map.

What each choice means, tick by tick: tests/hwmodel/oracle/rules.md.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from hwmodel.description.description import Strict, checked, nearest
from hwmodel.description.units import ExactNanoseconds
from hwmodel.description.written import TEXT_TOO

FIELDS = ("column", "bank", "bankgroup", "stack", "rank", "pseudochannel", "row")
"""Fields of an address map."""
MAX_QUEUE = 256
"""Entries of one queue."""


class MemoryController(Strict):
    """The memory controller of one channel; see docs/dram.md."""

    scheduler: Literal["frfcfs", "frfcfs_oldest_ready", "fcfs"] = "frfcfs"
    """Which waiting request goes first: row hits, the oldest that is ready, or strictly the
    oldest."""
    queue_scope: Literal["channel", "bank", "both_pseudochannels"] = "channel"
    """What has a read and a write queue: a pseudo-channel, each of its banks, or both
    pseudo-channels together."""
    queue_reuse: Literal["same_tick", "next_tick"] = "same_tick"
    """When a place in a queue may be taken again: in the tick in which a command freed it, or one
    later."""
    queues: Literal["separate", "shared"] = "separate"
    """Whether reads and writes wait apart and take turns, or in one queue of `read_queue`."""
    read_queue: Annotated[int, Field(ge=1, le=MAX_QUEUE)] = 32
    """Entries."""
    write_queue: Annotated[int, Field(ge=1, le=MAX_QUEUE)] = 32
    """Entries."""
    write_drain_high: Annotated[float, Field(ge=0, le=1)] = 0.8
    """Share of the write queue from which on writes go first."""
    write_drain_low: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Share below which reads go first again."""
    write_forwarding: bool = True
    """Whether a read is answered from a waiting write to the same burst."""
    partial_write: Literal["masked", "read_modify_write"] = "masked"
    """A write of less than a burst: by data mask, or by reading the burst first."""
    page_policy: Literal["open", "closed", "timeout", "adaptive"] = "open"
    """When a row is closed: for another one, with its last access, or after a time without use."""
    page_timeout: ExactNanoseconds = Fraction(200)
    """How long `timeout` (and at first `adaptive`) keeps a row open that nothing waits for."""
    refresh: Literal["all_bank", "per_bank", "none"] = "all_bank"
    """Of a whole rank, of some banks at a time, or none."""
    refresh_phase: Literal["aligned", "staggered"] = "aligned"
    """Whether channels refresh at the same time."""
    refresh_order: Literal["round_robin", "idle_first"] = "round_robin"
    """Of sets of banks: in turn, or those first that nobody waits for."""
    refresh_postpone: Annotated[int, Field(ge=0, le=8)] = 0
    """Refresh intervals by which a refresh may be put off while its banks are busy."""
    refresh_management: Literal["none", "rfm"] = "none"
    """Whether RFMs are issued where the memory has `refresh.management`."""
    row_counting: Literal["none", "prac"] = "none"
    """Whether rows are counted, and alerts answered, where the memory has `refresh.alerts`."""
    rules: dict[str, dict[str, bool | int | float | str]] = {}
    """More rules of the controller, each with its options: of a file of one's own, by `--plugin`
    (docs/extend.md)."""
    power_down_after: ExactNanoseconds | None = None
    """How long nothing waits and nothing goes on before a channel powers down; null: never."""
    self_refresh_after: ExactNanoseconds | None = None
    """How long nothing waits before it refreshes itself; null: never."""
    deep_sleep_after: ExactNanoseconds | None = None
    """How long nothing waits before it sleeps deeper than in self-refresh; null: never."""
    inline_ecc: Literal[0, 8, 16, 32] = 0
    """Bytes of data that a check byte in the same memory protects; 0: none."""
    row_hit_limit: Annotated[int, Field(ge=0)] = 16
    """Column commands to a row before a bank's older request to another row goes first; 0: none."""
    activation_buffer: Annotated[int, Field(ge=0, le=MAX_QUEUE)] = 0
    """Requests that leave their queue as their row opens; 0: none."""

    @checked
    def _consistent(self) -> None:
        if self.write_drain_low > self.write_drain_high:
            raise ValueError("write_drain_low is above write_drain_high")
        if self.scheduler == "fcfs" and self.activation_buffer:
            raise ValueError("scheduler fcfs has no activation_buffer")
        if not 0 < self.page_timeout <= 10**9:
            raise ValueError("page_timeout must be above zero and at most 1s")
        if self.inline_ecc and self.partial_write == "masked":
            raise ValueError(
                "inline_ecc: check bits of a part need the whole; expected partial_write: "
                "read_modify_write"
            )
        if self.deep_sleep_after is not None and self.self_refresh_after is None:
            raise ValueError("deep_sleep_after: expected self_refresh_after too; it comes before")
        for name in ("power_down_after", "self_refresh_after", "deep_sleep_after"):
            after = getattr(self, name)
            if after is not None and not 0 <= after <= 10**9:
                raise ValueError(f"{name} must be at most 1s")


class Hash(Strict):
    """`field` is XORed with bits of the row, from bit `row_bit` upwards."""

    field: Literal["bank", "bankgroup", "stack", "rank", "pseudochannel"]
    """The field that is hashed."""
    row_bit: Annotated[int, Field(ge=0, le=31)]
    """The first bit of the row that it is xored with."""


class AddressField(Strict):
    """A run of `bits` of one field; None takes what is left."""

    field: Literal["column", "bank", "bankgroup", "stack", "rank", "pseudochannel", "row"]
    """Which it is."""
    bits: int | None = None
    """How many."""


def _address_field(value: object) -> object:
    if not isinstance(value, str):
        return value
    name, colon, bits = value.partition(":")
    if name not in FIELDS:
        raise ValueError(f"unknown field {name!r}; {nearest(name, list(FIELDS))}")
    if colon and not bits.isdigit():
        raise ValueError(f"expected field:bits, such as column:5; got {value!r}")
    return AddressField.model_validate({"field": name, "bits": int(bits) if colon else None})


AddressMap = list[Annotated[AddressField, BeforeValidator(_address_field), TEXT_TOO]]
"""Field type: fields from the least significant bit above the burst upwards."""

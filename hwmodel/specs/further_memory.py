"""A memory that an accelerator has beside its main one, and what lies between it and the engines.

It is described by the keys that the main one has (`hwmodel.specs.accelerator.AcceleratorSpec`), and
simulated by the same kernel: a device of its own, with the same engines. `read_through` makes that
device's description out of the accelerator's.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from hwmodel.description.description import Document, Strict
from hwmodel.description.units import BytesPerSecond, Nanoseconds, PositiveBytes, parse_quantity
from hwmodel.description.written import KeysOf
from hwmodel.specs.controller import MemoryController
from hwmodel.specs.dma import Dma
from hwmodel.specs.given_memory import GivenMemory, Share

MAIN = "main"
"""The memory that an accelerator describes at its own level."""
OF_A_MEMORY = (
    "memory", "given", "memory_set", "channels", "capacity", "interleave", "channel_hash",
    "channel_map", "controller", "address_map", "derate", "inbox", "request_interval",
)  # fmt: skip
"""Keys that a further memory has of its own, or leaves at their defaults."""
_OF_THE_MAIN_ONE = (
    "memories", "memories_overlap", "memories_port", "translation", "memory_side_cache", "dies",
    "bus", "on_chip", "plausible", "based_on",
)  # fmt: skip
"""What the accelerator says of its main memory only, or of all of them."""


Dollars = Annotated[float, Field(ge=0, strict=False)]
Watts = Dollars
SquareMillimetres = Dollars


class MemoryCrossing(Strict):
    """What lies between the engines and a memory: another die, a link, a controller."""

    latency: Nanoseconds = 0.0
    """One way, beside the latencies of `dma`."""
    bandwidth: Annotated[BytesPerSecond, Field(gt=0)] | None = None
    """Of all that comes over it, whatever the memory gives. None: no limit."""


class FurtherMemory(Strict):
    """One of them; keys as of the main one."""

    memory: str
    """A shipped memory, a file, or `given`."""
    given: GivenMemory | None = None
    memory_set: dict[str, Any] = {}
    """Overrides of the memory's description."""
    channels: Annotated[int, Field(ge=1, le=1024)] = 1
    """Channels of this memory."""
    capacity: PositiveBytes
    """Capacity of this memory on the card."""
    interleave: PositiveBytes = 1
    """Consecutive bytes that stay in one channel."""
    channel_hash: Literal["none", "rotate", "xor"] = "none"
    """How blocks of addresses are spread over channels."""
    channel_map: Literal["known", "borrowed", "drawn"] | None = None
    """Where interleave and hash are from."""
    controller: Annotated[dict[str, Any], KeysOf(MemoryController)] = {}
    """What the controller of this memory has otherwise than its description."""
    address_map: list[str] | None = None
    """Order of address bits, where not the memory's own."""
    dma: Annotated[dict[str, Any], KeysOf(Dma)] = {}
    """What the engines do otherwise at this memory."""
    derate: Share = 1.0
    """Share of this memory's bandwidth that reaches the engines."""
    inbox: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Requests that wait before a channel at most."""
    request_interval: Annotated[Nanoseconds, Field(ge=0)] = 0.0
    """Least time between two requests that the endpoint of a channel takes."""
    crossing: MemoryCrossing = MemoryCrossing()
    price_gb: Dollars | None = None
    """Dollars of a GB (10^9 bytes), where the accelerator has a `price`."""
    draw_gbps: Watts | None = None
    """Watts of a GB/s of its peak, where the accelerator has a `draw`."""
    area_channel: SquareMillimetres | None = None
    """Square millimetres of a channel, where the accelerator has an `area`."""


def read_through(document: Document, name: str, spec: FurtherMemory) -> Document:
    """The accelerator as its engines find it at this further memory: that one is its main memory,
    behind its crossing. `document`: completed, and checked as a whole, which made `spec`."""
    own = Document({}, document.file, digest=document.digest)
    for key in document.data:
        if key not in OF_A_MEMORY and key not in _OF_THE_MAIN_ONE and key != "dma":
            own.graft((key,), document, (key,))
    described = document.data["memories"][name]
    for key in OF_A_MEMORY:
        if key in described:
            own.graft((key,), document, ("memories", name, key))
    if spec.given is not None:
        return own
    if "dma" in document.data:
        own.graft(("dma",), document, ("dma",))
    for key in described.get("dma", {}):
        own.graft(("dma", key), document, ("memories", name, "dma", key))
    latency_ns = spec.crossing.latency
    for key in ("request_latency", "response_latency"):
        stated = own.get(("dma", key))
        if latency_ns and isinstance(stated, str):
            whole_ns = float(parse_quantity(stated, "time")) + latency_ns
            own.put(("dma", key), f"{whole_ns:.3f}ns", document.mark(("memories", name)))
    return own

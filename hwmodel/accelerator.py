"""The description of an accelerator: memory channels, DMA engines, compute, fixed overheads."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from hwmodel.description import Strict
from hwmodel.units import BytesPerSecond, FlopsPerSecond, Nanoseconds, PositiveBytes

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, le=1)]


class Dma(Strict):
    """The engines that move data between memory and cores; all of them alike."""

    engines: Annotated[int, Field(ge=1, le=1024)]
    window: PositiveBytes
    """Bytes an engine may have outstanding."""
    request: PositiveBytes
    """Largest piece an engine sends at once."""
    descriptor_cost: Nanoseconds
    """Time an engine spends on each contiguous extent before its first request."""
    port_bandwidth: BytesPerSecond
    """Rate at which one engine can issue."""
    request_latency: Nanoseconds
    """From engine to memory controller."""
    response_latency: Nanoseconds
    """From memory controller back to the engine."""

    @model_validator(mode="after")
    def _window_holds_a_request(self) -> Dma:
        if self.window < self.request:
            raise ValueError("window is smaller than one request")
        return self


class Compute(Strict):
    """Peak rates and the share of them that is reached."""

    fp16: FlopsPerSecond
    bf16: FlopsPerSecond | None = None
    prefill_efficiency: Share
    decode_efficiency: Share
    overlap: Literal["max", "sum"]
    """How compute and memory time of one phase combine."""
    step_overhead: Nanoseconds
    layer_overhead: Nanoseconds


class Host(Strict):
    """The link to host memory (swap)."""

    bandwidth: BytesPerSecond


class AcceleratorSpec(Strict):
    """One accelerator, as `yaml/accelerators/*.yaml` describes it."""

    kind: Literal["accelerator"]
    name: str
    summary: str
    sources: dict[str, str] = {}
    memory: str
    """A shipped memory, or the path of one."""
    memory_set: dict[str, Any] = {}
    """Overrides of the memory's description, by dotted path."""
    channels: Annotated[int, Field(ge=1, le=1024)]
    capacity: PositiveBytes
    interleave: PositiveBytes
    """Consecutive bytes that stay in one channel."""
    channel_hash: Literal["none", "rotate", "xor"] = "none"
    """`rotate`: channel = (block + row of blocks) mod N; `xor` (N a power of two): block ^ row
    of blocks."""
    controller: dict[str, Any] = {}
    """Overrides of the memory's controller."""
    address_map: list[str] | None = None
    """Overrides the memory's."""
    dma: Dma
    compute: Compute
    host: Host | None = None

    @model_validator(mode="after")
    def _consistent(self) -> AcceleratorSpec:
        if self.interleave & (self.interleave - 1):
            raise ValueError("interleave: must be a power of two")
        if self.channel_hash == "xor" and self.channels & (self.channels - 1):
            raise ValueError("channel_hash: xor needs a power of two of channels; use rotate")
        return self

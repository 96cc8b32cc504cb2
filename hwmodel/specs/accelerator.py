"""The description of an accelerator: memory channels, DMA engines, compute, fixed overheads."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails

from hwmodel.description.description import DescriptionError, Strict, again, checked
from hwmodel.description.units import (
    BytesPerSecond,
    FlopsPerSecond,
    Milliwatts,
    Nanoseconds,
    PositiveBytes,
)
from hwmodel.description.written import Also, KeysOf
from hwmodel.specs.by_size import SizedRate, by_size, rising
from hwmodel.specs.controller import MemoryController
from hwmodel.specs.dma import Dma
from hwmodel.specs.further_memory import MAIN, Dollars, FurtherMemory, SquareMillimetres, Watts
from hwmodel.specs.given_memory import GivenMemory, Share
from hwmodel.specs.kernel_law import Kernels
from hwmodel.specs.kv_order import LAYOUTS, KvOrder
from hwmodel.specs.memory_side_cache import MemorySideCache
from hwmodel.specs.number_format import ComputeType, number_format
from hwmodel.specs.plausible import Plausible
from hwmodel.specs.published import OnChip, PublishedBus
from hwmodel.specs.virtual_memory import Translation

GIVEN = "given"
"""What `memory` says where the bandwidth is given instead of simulated."""
_SIMULATED = ("channels", "interleave", "dma")
"""Keys that a simulated memory needs."""
_SIMULATED_TOO = (
    "memory_set", "channel_hash", "channel_map", "controller", "address_map", "derate", "dies",
    "inbox", "translation", "memory_side_cache", "request_interval",
)  # fmt: skip
"""Keys that it may have besides."""


def _overlap(value: object) -> object:
    share = {"max": 1.0, "sum": 0.0}.get(value, value) if isinstance(value, str) else value
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise ValueError(f"expected max, sum or a share of 0 to 1; got {value!r}")
    return share


Overlap = Annotated[float, BeforeValidator(_overlap), Also((("enum", ["max", "sum"]),))]


def _none(value: object) -> object:
    """An override may take them away: `memories=null`."""
    return {} if value is None else value


class AttentionWork(Strict):
    """How attention is spread over the cores, an engine each."""

    spread: Literal[
        "slice", "sequence", "split", "head", "head_major", "head_slice", "head_turn"
    ] = "slice"
    """What an engine gets of a batch: an equal slice of all bytes, whole sequences, extents in
    turn, or single KV heads of a sequence, sequence by sequence or head by head; or an equal slice
    of all heads, or of one head after another."""
    drift: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of its own bytes within which each engine is at a place of its own: cores are launched
    one by one and walk at their own pace. 0: all walk in lockstep."""
    grouped: bool = True
    """Query heads that share a KV head are served by one read of it; else each reads it again."""


class Paging(Strict):
    """How the vendor's serving software keeps the KV cache on the card; as vLLM does on a GPU where
    nothing is known. Serving takes both where it names none."""

    kv_layout: KvOrder = LAYOUTS["layer_kv_token"]
    """Also of contiguous reservations, each a block: the same kernel reads them (assumed)."""
    block: Annotated[int, Field(ge=1, le=2048)] = 16
    """Tokens in a block."""


class Compute(Strict):
    """Peak rates and the share of them that is reached."""

    fp16: FlopsPerSecond
    """Peak of dense matrix products, as of the next ones."""
    bf16: FlopsPerSecond | None = None
    """Peak in this type."""
    fp32: FlopsPerSecond | None = None
    """Peak in this type."""
    fp8: FlopsPerSecond | None = None
    """Peak in this type."""
    fp4: FlopsPerSecond | None = None
    """Peak in this type."""
    int8: FlopsPerSecond | None = None
    """Integer operations count as FLOPs."""
    vector: FlopsPerSecond | None = None
    """Operations outside matrix products, in which KV is quantised and converted back. None: fp32,
    or a sixteenth of fp16 (assumed: so it is on an A100)."""
    quantiser: Literal["cores", "dma"] = "cores"
    """What quantises KV: the cores, beside the FLOPs of attention, or an engine in the DMA's path
    that keeps up with the memory, so that it takes no time."""
    prefill_efficiency: Share
    """Share of the peak that prompts reach, of FLOPs alone."""
    decode_efficiency: Share
    """Share of the peak that decoding reaches, of FLOPs alone."""
    overlap: Overlap
    """Share of the shorter of a phase's compute and memory times that the longer one hides: `max`
    all of it, `sum` none."""
    renamed: ClassVar[dict[str, str]] = {
        "step_overhead": "kernels.host", "layer_overhead": "kernels.kernel, of a kernel",
    }  # fmt: skip

    @property
    def vector_rate(self) -> float:
        """Operations a second outside matrix products."""
        return float(self.vector or self.fp32 or self.fp16 / 16)

    def quantising_ops(self, stored: str) -> tuple[float, float]:
        """Vector operations of the cores to load and to store a number of KV in this format."""
        if self.quantiser == "dma":
            return 0.0, 0.0
        cost = number_format(stored).quantising
        return cost.load_ops, cost.store_ops

    def peak(self, stored: str) -> float:
        """FLOPs/s of matrix products in which one operand is stored in this format.

        They run at the peak of the format's `compute` type where there is one (the other operand is
        then quantised as it is made). Without it numbers are converted to fp16 as they are loaded
        and multiplied at that peak; the conversion costs nothing (assumed; vLLM's Marlin kernels do
        so on cards without fp8). Raises DescriptionError for wide formats without a peak.
        """
        form = number_format(stored)
        kind = form.compute
        own: float | None = getattr(self, kind)
        if own is not None:
            return own
        if form.bits >= 16:
            types = get_args(ComputeType)
            known = [name for name in types if getattr(self, name) is not None]
            raise DescriptionError(
                f"compute.{kind}: the accelerator does not compute in {kind}, it has "
                f"{', '.join(known)}; give compute.{kind}, or another type of weights"
            )
        return self.fp16


class Price(Strict):
    """Dollars."""

    card: Dollars
    """Of all but its memories."""
    gb: Dollars
    """Of a GB (10^9 bytes) of the main memory."""


class PowerDraw(Strict):
    """Watts while it serves."""

    card: Watts
    """Of all but its memories."""
    gbps: Watts
    """Of a GB/s of the main memory's peak: 0.04 are 5 pJ a bit."""


class Area(Strict):
    """Square millimetres, of the die or of the package: whichever you are short of."""

    card: SquareMillimetres
    """Of all but its memories."""
    channel: SquareMillimetres
    """Of a channel of the main memory: its interface on the die, or its part of a stack."""


class Host(Strict):
    """The link to host memory (swap)."""

    bandwidth: BytesPerSecond
    """One way."""


class Direct(Strict):
    """Cards that read each other's memory, all to all (NVLink, peer access): what programs' own
    all-reduces go by."""

    latency: Nanoseconds
    """Of an all-reduce of next to nothing: its kernel, and a barrier over the cards."""
    bandwidth: Annotated[BytesPerSecond, Field(gt=0)]
    """At which a card reads from all the others together in such a kernel."""
    mesh: bool = False
    """Whether each two cards have a link of their own, so that `bandwidth` is that from one of the
    others (AMD's Infinity Fabric)."""
    largest: PositiveBytes | None = None
    """Up to which messages go by such kernels, where they are the quicker; longer ones by NCCL's.
    None: all, whatever NCCL's would take."""

    def all_reduce_s(self, cards: int, size_bytes: float) -> float:
        """Seconds, in one pass, where each card reads all that the others have, or in two, where it
        sums a share and then reads the sums, whichever is shorter (vLLM's and SGLang's custom
        all-reduce, one stage and two)."""
        bandwidth = self.bandwidth * (cards - 1 if self.mesh else 1)
        once = self.latency * 1e-9 + (cards - 1) * size_bytes / bandwidth
        shares = 2 * (cards - 1) / cards * size_bytes / bandwidth
        return min(once, 2 * self.latency * 1e-9 + shares)


HOST_HOP_NS = 10_000
"""Latency of a message between two cards by way of the host (assumed: as `mlu370-x4` has it)."""


class CardLink(Strict):
    """The links between the cards of one server."""

    bandwidth: BytesPerSecond
    """What a card sends to its neighbours, one way."""
    latency: Nanoseconds
    """Of one message."""
    all_reduce: Annotated[list[SizedRate], AfterValidator(rising)] | None = None
    """What all-reduces of some sizes were measured at, by size. None: the ring's messages over
    `bandwidth` and `latency`."""
    direct: Direct | None = None
    """All-reduces by programs' own kernels, where cards read each other's memory. None: always a
    ring."""
    renamed: ClassVar[dict[str, str]] = {"one_shot": "direct"}

    def all_reduce_s(self, cards: int, size_bytes: float, nccl: bool = False) -> float:
        """Seconds of an all-reduce. By the rates measured where there are any, between two sizes in
        proportion to the logarithms, beyond them as at the last; else `direct` or NCCL's ring or
        tree over the same links, whichever is shortest, as programs' thresholds by card and number
        are set (vLLM's `CUSTOM_ALL_REDUCE_MAX_SIZES`), and NCCL's alone where the program takes it
        or the message is longer than its own kernels take; else a ring of 2 (N - 1) messages of
        size / N (Patarasuk and Yuan 2009)."""
        if self.all_reduce is not None:
            points = [(each.size, each.rate) for each in self.all_reduce]
            return size_bytes / by_size(points, size_bytes)
        messages, latency = 2 * (cards - 1), self.latency * 1e-9
        ring = messages * (size_bytes / cards / self.bandwidth + latency)
        if self.direct is None:
            return ring
        # up a tree and down again, two trees at once (Sanders, Speck and Traeff 2009; NCCL 2.4)
        levels = math.ceil(math.log2(cards))
        by_nccl_s = min(ring, 2 * (levels * latency + size_bytes / self.bandwidth))
        longest = self.direct.largest
        if nccl or (longest is not None and size_bytes > longest):
            return by_nccl_s
        own_s = self.direct.all_reduce_s(cards, size_bytes)
        return own_s if longest is None else min(by_nccl_s, own_s)

    def exchange_s(self, size_bytes: float) -> float:
        """Seconds until the card that gets most has its `size_bytes` from the others, which all
        send at once (assumed): one message's latency."""
        return size_bytes / self.bandwidth + self.latency * 1e-9


class Dies(Strict):
    """Dies that share the engines and the channels evenly, in their order, and what lies between
    them."""

    count: Annotated[int, Field(ge=2, le=16)]
    """Which share engines and channels evenly."""
    crossing_latency: Nanoseconds
    """From a die to another, one way, beside the latencies of `dma`."""
    crossing_bandwidth: BytesPerSecond
    """Of all data that comes into a die: read by its engines, written to its channels."""


class AcceleratorSpec(Strict):
    """One accelerator, as `yaml/accelerators/*.yaml` describes it."""

    kind: Literal["accelerator"]
    name: str
    summary: str
    known_as: list[str] = []
    """What its driver calls it, by which `bankwise` alone finds the card of this machine."""
    sources: dict[str, str] = {}
    based_on: str | None = None
    """Another accelerator, the source of what no data sheet states, borrowed as assumed."""
    memory: str
    """A shipped memory, or the path of one; `given`: its bandwidth is given instead, and nothing
    that needs addresses or commands can be asked of the device."""
    given: GivenMemory | None = None
    """With `memory: given`; then no key about channels, controller or DMA engines."""
    memory_set: dict[str, Any] = {}
    """Overrides of the memory's description, by dotted path."""
    channels: Annotated[int, Field(ge=1, le=1024)] = 1
    """Times the peak of the memory is that of the card."""
    capacity: PositiveBytes
    """Of the card; no more than its channels hold."""
    interleave: PositiveBytes = 1
    """Consecutive bytes that stay in one channel."""
    channel_hash: Literal["none", "rotate", "xor"] = "none"
    """`rotate`: channel = (block + row of blocks) mod N; `xor` (N a power of two): block ^ row
    of blocks."""
    channel_map: Literal["known", "borrowed", "drawn"] | None = None
    """Where interleave and hash are from: published or measured of this device, those of another
    one, or chosen here, as nothing is public. None: it is not said. Stated, never borrowed."""
    controller: Annotated[dict[str, Any], KeysOf(MemoryController)] = {}
    """Overrides of the memory's controller."""
    address_map: list[str] | None = None
    """Overrides the memory's."""
    dma: Dma = None  # type: ignore[assignment]  # there, unless the memory is given
    derate: Share = 1.0
    """Share of the bandwidth of the simulated DRAM that reaches the requesters; 1: nothing is lost.
    Serving times are divided by it; see docs/memory-time.md."""
    dies: Dies | None = None
    inbox: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Requests on their way to a channel or waiting before its queues, at most; while it has so
    many, engines whose next request goes there stall. None: no limit."""
    request_interval: Annotated[Nanoseconds, Field(ge=0)] = 0.0
    """Least time between two requests that the endpoint of a channel takes, whatever their size. 0:
    it takes them as they come."""
    translation: Translation | None = None
    """From virtual to physical addresses. None: it costs nothing, and all addresses are physical.
    """
    memory_side_cache: MemorySideCache | None = None
    """None: writes go to the controller as they are issued."""
    memories: Annotated[dict[str, FurtherMemory], BeforeValidator(_none)] = {}
    """Memories beside the one above, by name; that one is `main`. What serving keeps in which is
    `serving.memories`."""
    memories_overlap: Literal["step", "phase", "none"] = "phase"
    """What of a step the memories move at the same time. `phase`: what a phase has in them, so that
    weights that lie in one and KV in another are read one after the other. `step`: all of it, as
    where weights are fetched ahead of the layers (a bound: nothing waits for what it needs).
    `none`: one memory after the other."""
    memories_port: Annotated[BytesPerSecond, Field(gt=0)] | None = None
    """What the engines take of all memories together. None: all that these give."""
    compute: Compute
    kernels: Kernels
    """What kernels take beyond memory and FLOPs: a class, and what is otherwise on this device."""
    price: Price | None = None
    """What the card costs, as you are told; none ships for what is sold."""
    draw: PowerDraw | None = None
    """What the card draws, as you are told; hypothetical devices have it."""
    area: Area | None = None
    """What the card takes of its die or package, as you are told; none ships."""
    power: Annotated[Milliwatts, Field(gt=0)] | None = None
    """The most that the whole board draws (TDP)."""
    work: AttentionWork = AttentionWork()
    paging: Paging = Paging()
    host: Host | None = None
    link: CardLink | None = None
    bus: PublishedBus | None = None
    """What is published of the memory's interface: checked, and no part of the model."""
    on_chip: OnChip | None = None
    """What lies before the memory beside a `memory_side_cache`: remarked on, no part of the model.
    """
    plausible: dict[str, Plausible] = {}
    """Name -> what it may be instead, where its vendor publishes nothing."""

    @property
    def card_link(self) -> CardLink | None:
        """What connects it to cards like it: `link`, or the way over the host where that alone is
        described (assumed: at the host's bandwidth, a message in `HOST_HOP_NS`)."""
        if self.link is not None or self.host is None:
            return self.link
        return CardLink.model_construct(bandwidth=self.host.bandwidth, latency=float(HOST_HOP_NS))

    @property
    def before_memory(self) -> OnChip | None:
        """What is remarked on: `on_chip`, or else the cache."""
        if self.on_chip is not None or self.memory_side_cache is None:
            return self.on_chip
        size = self.memory_side_cache.size
        return OnChip.model_construct(size=size, managed_by="hardware")

    @model_validator(mode="wrap")
    @classmethod
    def _simulated_is_described(
        cls, data: Any, handler: ModelWrapValidatorHandler[AcceleratorSpec]
    ) -> AcceleratorSpec:
        """What a simulated memory needs is missing like any other required key."""
        if not isinstance(data, dict) or data.get("memory") == GIVEN:
            return handler(data)
        found = [
            InitErrorDetails(type="missing", loc=(key,), input=data)
            for key in _SIMULATED
            if key not in data
        ]
        if not found:
            return handler(data)
        try:
            handler(data)
        except ValidationError as error:
            found += [again(item) for item in error.errors()]
        raise ValidationError.from_exception_data(cls.__name__, found)

    @checked
    def _consistent(self) -> None:
        if (self.memory == GIVEN) != (self.given is not None):
            raise ValueError("given: stands with memory: given, and only there")
        for name, each in self.memories.items():
            if (each.memory == GIVEN) != (each.given is not None):
                at = f"memories.{name}.given"
                raise ValueError(f"{at}: stands with memory: given, and only there")
        if MAIN in self.memories:
            raise ValueError(f"memories: {MAIN} is the one outside of them; expected another name")
        if self.given is not None:
            if keys := self.model_fields_set.intersection((*_SIMULATED, *_SIMULATED_TOO)):
                raise ValueError(f"{min(keys)}: of a simulated memory; this one is given")
            return
        if self.interleave & (self.interleave - 1):
            raise ValueError("interleave: must be a power of two")
        if self.channel_hash == "xor" and self.channels & (self.channels - 1):
            raise ValueError("channel_hash: xor needs a power of two of channels; use rotate")
        for key, many in (("dma.engines", self.dma.engines), ("channels", self.channels)):
            if self.dies is not None and many % self.dies.count:
                raise ValueError(f"dies.count: must divide {key}, {many}")

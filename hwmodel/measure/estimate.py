"""A closed form of what a device reads in extents anywhere in memory: no simulation, an instant.

Each resource alone would allow a rate; together they allow less than the least, because a queue
that holds requests for one waits while another idles. The rates r_i combine as

    r = (sum of r_i^-p) ^ (-1 / p)

p = 1 is a closed network whose service times vary exponentially, p = infinity its asymptotic bounds
(Denning and Buzen 1978). In a pseudo-channel:

- the buses, and activations (tRRD, tFAW / window);
- banks, a row cycle each. Only those are busy that some entry of the queue wants: of B banks with
  R rows in the queue R / (R + c (B - 1)) of them, the balanced closed network for c = 1;
- the queue by Little's law: Q entries wait while a row opens, but bursts that enter while their row
  is open do not. m bursts take m t + L - (Q - 1) t, where m > Q consecutive ones share an opening
  of L, and Q entries turn over in L + t where m < Q. A full queue of one pseudo-channel holds back
  the other, which leaves fewer entries to each.

In the device: the channels, of which N pieces in flight keep N / (N + C - 1) busy; the engines'
windows by Little's law (bytes over the latency of a request); their ports and descriptors.

What counts is how an extent falls apart: from its place (anywhere in slots of its size, rounded up
to `align`) into bursts, requests, pieces of an interleave block in one channel, and rows of several
banks. Starts that are all multiples of a power of two leave banks and channels out that nothing
hashes. A later piece or request finds its row open unless another engine has wanted its bank since.

Reads only, extents of all engines independent; what it knows nothing of: `unknown`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hwmodel.kernel.address import to_channel
from hwmodel.measure.bounds import (
    SAME_BANK,
    activation_ticks,
    bank_cycle,
    beats,
    command_slots,
    refresh_share,
    row_delay,
)
from hwmodel.measure.racm import slot_bytes
from hwmodel.specs.device import Device
from hwmodel.specs.memory_spec import MemorySpec


class Constants(NamedTuple):
    """Fitted: docs/layout.md says to what, and how far they are off elsewhere."""

    channel: float
    """Exponent of what binds in a channel."""
    spread: float
    """Of pieces in flight that meet in the same channels."""
    windows: float
    """Of the engines' windows."""
    conflict: float
    """How much banks that are wanted at random lose; 1: service times vary exponentially."""
    kept: float
    """How much of the other engines' requests come between two of one engine in a channel."""
    held: float
    """How much of a pseudo-channel's queue stands empty while the other's is full."""
    programmed: float
    """Share of a descriptor's cost that a full window does not hide."""


FITTED = Constants(4.55, 1.44, 2.81, 0.43, 0.36, 1.21, 0.29)
ERRORS = {1: (0.03, 0.08, 0.27), 2: (0.06, 0.17, 0.37)}
"""Pseudo-channels of a channel -> median, nine-in-ten and worst relative error, on settings held
out of the fit."""
TESTED = {"read_queue": (16, 128), "activation_buffer": (0, 32), "engines": (8, 64),
          "window": (4096, 65536), "interleave": (256, 8192), "extent": (64, 65536)}  # fmt: skip
"""Least and most of what was held out; beyond it the error is not known."""
_BLOCKS = 64
"""Longer extents lie in all channels nearly alike."""
_PLACES = 16
"""Of an extent in an interleave block that are looked at."""


class Estimate(NamedTuple):
    """GB/s of extents that lie anywhere, the share of the peak, and what each limit alone would
    allow, GB/s."""

    gbps: float
    efficiency: float
    limits_gbps: dict[str, float]

    @property
    def binding(self) -> str:
        """The least of the limits."""
        return min(self.limits_gbps, key=lambda name: self.limits_gbps[name])


class Pieces(NamedTuple):
    """How an extent falls apart. Means over its places."""

    moved: float
    """Bytes of the bursts it touches."""
    bursts: float
    """Of a piece: what lies in one block of the interleave. So are the next five."""
    rows: float
    requests: float
    openings: float
    """Rows that its requests touch, one request after the other."""
    pseudochannels: float
    turns: float
    """Runs of bursts in one pseudo-channel."""
    banks: float
    """Share of the banks' rate that the starts leave: 1 where all banks are wanted alike."""
    paired: float
    """The same of the pseudo-channels."""
    channels: float
    """The same of the channels, and of pseudo-channels that alternate by blocks."""


def unknown(device: Device) -> str | None:
    """What a device has that the closed form does not know; None: nothing."""
    memory, a = device.memory, device.accelerator
    c = memory.controller
    has = {
        "scheduler: fcfs": c.scheduler == "fcfs",
        "row_hit_limit below 16": 0 < c.row_hit_limit < 16,
        "refresh_management": memory.managed,
        "row_counting": memory.alerts is not None,
        "a command of kind PERIODIC": bool(memory.periodic),
        "inline_ecc": c.inline_ecc > 0,
        "power_down_after, self_refresh_after": memory.sleeps,
        "dies": a is not None and a.dies is not None,
        "inbox": a is not None and a.inbox is not None,
        "request_interval": a is not None and a.request_interval > 0,
        "translation": a is not None and a.translation is not None,
    }
    return next((name for name, there in has.items() if there), None)


def untested(device: Device, extent: int) -> list[str]:
    """What lies beyond the settings that were held out, with its bounds."""
    c = device.memory.controller
    values = {"read_queue": c.read_queue, "activation_buffer": c.activation_buffer}
    values["extent"] = extent
    if (a := device.accelerator) is not None:
        values |= {"engines": a.dma.engines, "window": a.dma.window, "interleave": a.interleave}
    return [
        f"{name} {values[name]:,} ({low:,} to {high:,})"
        for name, (low, high) in TESTED.items()
        if name in values and not low <= values[name] <= high
    ]


def estimate(device: Device, extent: int, align: int = 1, p: Constants = FITTED) -> Estimate:
    """What the device's engines, or one channel's queues, read in extents of `extent` bytes that
    begin at multiples of `align`."""
    memory, a = device.memory, device.accelerator
    burst, tick_ns = memory.organisation.burst_bytes, float(memory.tick_clock.ns_of_ticks(1))
    pieces = fall_apart(device, extent, align)
    limits, each, opening = _pseudochannel(device, pieces, p)
    pseudochannels = device.channels * memory.organisation.pseudochannels * pieces.paired
    to_gbps = burst / tick_ns * pseudochannels * pieces.channels
    useful = extent / pieces.moved
    gbps = {name: rate * to_gbps * useful for name, rate in limits.items()}
    total = each * to_gbps
    if a is not None:
        dma, piece = a.dma, pieces.bursts * burst
        flying = dma.engines * (1 + dma.window / piece)
        spread = total * flying / max(a.channels - 1, 1e-9)
        request = min(piece / pieces.requests, dma.window)
        slots = memory.data.read
        data_end = memory.ticks(slots.latency) + max(memory.ticks(b) for _, b in slots.segments)
        data_ns = (data_end + opening) * tick_ns
        latency_ns = dma.request_latency + dma.response_latency + data_ns
        latency_ns += request / (total / a.channels)
        turn_ns = pieces.moved * latency_ns / dma.window + p.programmed * dma.extent_cost
        windows = dma.engines * pieces.moved / turn_ns
        asked = float(extent)
        if (dma.minimum_access or 0) > burst:  # the engines ask for whole accesses
            asked = pieces.moved
        port_ns = asked / (dma.port_bandwidth / 1e9)
        ports = dma.engines * extent / (dma.extent_cost + port_ns) / useful
        gbps |= {"windows": windows * useful, "descriptors and ports": ports * useful}
        total = _together([_together([total, spread], p.spread), windows], p.windows)
        total = min(total, ports)
    return Estimate(total * useful, total * useful / device.peak_gbps, gbps)


def _together(rates: list[float], p: float) -> float:
    return float(sum(rate**-p for rate in rates) ** (-1 / p))


def fall_apart(device: Device, extent: int, align: int = 1) -> Pieces:
    """How extents of `extent` bytes that begin at multiples of `align` fall apart."""
    memory, a = device.memory, device.accelerator
    burst, slot = memory.organisation.burst_bytes, slot_bytes(extent, align)
    block = a.interleave if a else 1 << 40
    access = max(burst, (a.dma.minimum_access or 0) if a else 0)
    request = min(a.dma.request, block) if a else block
    fields = _fields(memory)
    grid = math.gcd(slot, block)
    golden = (np.arange(_PLACES) * 0.6180339887) % 1
    places = np.unique((golden * (block // grid)).astype(np.int64)) * grid
    sums = np.zeros(7)
    for place in places.tolist():
        low, high = place // access * access, -(-(place + extent) // access) * access
        last = (high - 1) // block
        parts = [(1, low, min(high, block))]
        if last > 0:
            parts += [(1, 0, high - last * block), (last - 1, 0, block)]
        for times, begin, end in parts:
            if times:
                at = np.arange(begin // burst, end // burst)
                row, pair = at & fields["row and bank"], at & fields["pseudochannel"]
                of = at * burst // request
                asked = np.unique(np.stack((of, row)), axis=1).shape[1]
                turns = 1 + np.count_nonzero((np.diff(pair) != 0) | (np.diff(of) != 0))
                counts = (1, len(at), len(np.unique(row)), of[-1] - of[0] + 1, asked)
                sums += times * np.array([*counts, len(np.unique(pair)), turns])
    bursts, rows, requests, openings, pairs, turns = (sums[1:] / sums[0]).tolist()
    touched = -(-extent // access) * access // burst
    return Pieces(
        sums[1] / len(places) * burst,
        bursts,
        rows,
        requests,
        openings,
        pairs,
        turns,
        banks=_used(touched, fields["plain"], grid // burst),
        paired=_used(touched, fields["pseudochannel"], grid // burst),
        channels=_channels_used(device, extent, slot),
    )


def _fields(memory: MemorySpec) -> dict[str, int]:
    """Bits of a burst's number in a channel: those that choose row and bank, pseudo-channel, and a
    bank that no hash moves."""
    hashed = {each.field for each in memory.bank_hash or []}
    found, shift = {"row and bank": 0, "pseudochannel": 0, "plain": 0}, 0
    for name, bits in memory.resolved_address_map():
        mask = ((1 << bits) - 1) << shift
        shift += bits
        if name == "column":
            continue
        if name == "row":
            mask = -1 << (shift - bits)  # and all above, of addresses beyond
        found["row and bank"] |= mask
        if name == "pseudochannel":
            found["pseudochannel"] |= mask
        elif name != "row" and name not in hashed:
            found["plain"] |= mask
    return found


def _used(bursts: int, mask: int, grid: int) -> float:
    """Mean over greatest load of what the bits of `mask` choose, by extents that begin at multiples
    of `grid` bursts: bits above that are as likely 0 as 1."""
    if not (mask := mask & (max(grid, 1) - 1)):
        return 1.0
    load = np.unique(np.arange(max(bursts, 1)) & mask, return_counts=True)[1]
    return float(load.sum() / (1 << mask.bit_count()) / load.max())


def _channels_used(device: Device, extent: int, slot: int) -> float:
    """The same of channels and of pseudo-channels that change from block to block, by extents in
    slots of `slot` bytes: starts that all lie on a coarser grid than blocks leave some out."""
    a = device.accelerator
    if a is None:
        return 1.0
    block, many = a.interleave, a.channels
    pairs = _fields(device.memory)["pseudochannel"] // (
        block // device.memory.organisation.burst_bytes
    )
    period = many * many * (pairs + 1 if pairs else 1) * block
    grid = math.gcd(slot, period)
    if block % grid == 0 or extent > _BLOCKS * block:
        return 1.0
    start = np.arange(0, period, grid)[:, None]
    number = start // block + np.arange(-(-extent // block) + 1)
    inside = np.minimum(start + extent, (number + 1) * block) - np.maximum(start, number * block)
    place = to_channel(device, number * block)[0] * 2 + ((number // many & pairs) > 0)
    load = np.bincount(place.ravel(), np.clip(inside, 0, None).ravel(), 2 * many)
    if not pairs:
        load = load[::2]
    return float(load.mean() / load.max())


def _kept_open(device: Device, pieces: Pieces, kept: float) -> float:
    """Bursts an activation: of a later request of a piece, or a later piece of an extent in the
    same channel, the rows may still be open."""
    memory, a = device.memory, device.accelerator
    apart = pieces.pseudochannels
    bursts, rows = pieces.bursts / apart, pieces.rows / apart
    if a is None:
        return bursts / rows
    banks = memory.organisation.banks / memory.organisation.pseudochannels
    others = (a.dma.engines - 1) / a.channels
    asked = pieces.openings / pieces.requests / apart
    still = max(1 - asked / (banks * pieces.banks), 0.0) ** (kept * others)
    opened = rows + (pieces.openings / apart - rows) * (1 - still)
    below = sum(bits for name, bits in memory.resolved_address_map() if name != "row")
    span, piece = (
        memory.organisation.burst_bytes << below,
        (pieces.bursts * memory.organisation.burst_bytes),
    )
    visits = max(1.0, min(pieces.moved / a.channels, span) / piece)
    again = max(0.0, 1 - rows / (banks * pieces.banks)) ** (a.dma.engines - 1)
    if memory.controller.page_policy == "closed":
        again = 0.0
    return bursts / opened / (1 - again * (visits - 1) / visits)


def _pseudochannel(
    device: Device, pieces: Pieces, p: Constants
) -> tuple[dict[str, float], float, float]:
    """(bursts a tick that each resource of a pseudo-channel allows, what they allow together, ticks
    until a row is open)."""
    memory, o = device.memory, device.memory.organisation
    bursts = _kept_open(device, pieces, p.kept)
    data = float(beats(memory.data.read, memory))
    rates = {}
    one, two = command_slots(memory, 1), command_slots(memory, 2)
    for bus, slots in one.items():
        read = two[bus] - slots
        if slots == read:  # column commands alone: in step with the data
            data = max(data, read)
        else:
            rates[f"{bus} bus"] = bursts / (slots + (bursts - 1) * read)
    rates["data bus"] = 1 / data
    rates["activations"] = bursts / float(max(activation_ticks(memory).values()))
    banks = o.banks / o.pseudochannels
    queue = float(memory.controller.read_queue)
    if memory.controller.queue_scope == "bank":
        queue *= banks
    if o.pseudochannels > 1 and pieces.paired == 1:
        queue /= 1 + p.held * math.sqrt(pieces.bursts / pieces.turns / queue)
    together = bursts * pieces.openings / pieces.requests / pieces.pseudochannels
    looked_at = max(together, queue)  # bursts
    rows = looked_at / bursts
    wanted = rows / (rows + p.conflict * (banks * pieces.banks - 1))
    rates["banks"] = banks * pieces.banks * wanted * bursts / bank_cycle(memory, bursts)
    opening = float(row_delay(memory, "ACT", "RD", SAME_BANK))
    closing = row_delay(memory, "PRE", memory.activate_command, SAME_BANK)
    opening += closing * (1 - _shut(memory, banks * bursts * data))
    rates["queue"] = looked_at / (opening + (looked_at - queue + 1) * data)
    paced = _together([rate for name, rate in rates.items() if name.endswith("bus")], p.channel)
    least = min(paced, rates["activations"])
    each = _together([least, rates["banks"], rates["queue"]], p.channel)
    if memory.controller.refresh == "all_bank":
        each *= 1 - float(refresh_share(memory, data_bound=True))
    if memory.controller.refresh == "per_bank":
        assert memory.refresh.per_bank is not None
        out = row_delay(memory, "REFPB", memory.activate_command, SAME_BANK)
        each *= 1 - out / memory.ticks(memory.refresh.per_bank.interval)
    return rates, each, opening


def _shut(memory: MemorySpec, revisit_ticks: float) -> float:
    """Share of rows that are closed before another is wanted, where each bank is wanted so often in
    the mean. Rows anywhere teach `adaptive` to close at once."""
    c = memory.controller
    if c.page_policy == "timeout":
        ticks = float(c.page_timeout) / float(memory.tick_clock.ns_of_ticks(1))
        return math.exp(-ticks / revisit_ticks)
    return float(c.page_policy in ("closed", "adaptive"))

"""A closed form of what a device reads in extents anywhere in memory: no simulation, an instant.

Each resource alone would allow a rate; together they allow less than the least, because a queue
that holds requests for one waits while another idles. The rates r_i combine as

    r = (sum of r_i^-p) ^ (-1 / p)

p = 1 is a closed network whose service times vary exponentially, p = infinity its asymptotic bounds
(Denning and Buzen 1978). In a pseudo-channel: the buses and activations (tRRD, tFAW / window);
these with its banks, a row cycle each, less their refreshes; these with its queue by Little's law:
an entry waits for a row cycle. In the device: its pseudo-channels, the engines' windows by
Little's law (bytes over the latency of a piece), and their ports and descriptors.

What counts is how an extent falls apart: into pieces of an interleave block in one channel, those
by the address map into rows of several banks. Where an extent comes back to a channel, a row is
still open unless another engine's extent has wanted its bank since.

Reads only, pages left open, extents of all engines independent: extents that share powers of two
(docs/traffic.md, camping), dies, inboxes and crossings are not in it.
"""

from __future__ import annotations

from typing import NamedTuple

from hwmodel.measure.bounds import (
    SAME_BANK,
    activation_ticks,
    bank_cycle,
    beats,
    command_slots,
    refresh_share,
    row_delay,
)
from hwmodel.specs.device import Device
from hwmodel.specs.memory_spec import MemorySpec


class Exponents(NamedTuple):
    """The constants, fitted: docs/layout.md says to what, and how far they are off elsewhere."""

    paced: float
    """What has a steady pace: buses and activations; channels, windows, ports and descriptors."""
    banks: float
    """What banks that are wanted at random lose."""
    queue: float
    """What a queue of few entries loses."""


FITTED = Exponents(7.81, 3.71, 1.97)
MEDIAN_ERROR, NINE_IN_TEN, WORST_ERROR = 0.05, 0.16, 0.33
"""Relative, of the cells that were held out of the fit."""


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


class _Rows(NamedTuple):
    """How a piece of consecutive bursts lies in a channel."""

    bursts: float
    """Of each row it opens, in the mean."""
    banks: int
    """It touches in a pseudo-channel."""
    pseudochannels: int


def estimate(device: Device, extent: int, p: Exponents = FITTED) -> Estimate:
    """What the device's engines, or one channel's queues, read in extents of `extent` bytes."""
    memory, a = device.memory, device.accelerator
    burst = memory.organisation.burst_bytes
    access = max(burst, (a.dma.minimum_access or 0) if a else 0)
    moved = -(-extent // access) * access
    piece = min(moved, a.interleave) if a else moved
    rows = _rows(memory, piece // burst)
    if a is not None:
        rows = rows._replace(bursts=rows.bursts * _kept_open(device, moved, piece, rows))
    waiting = float(memory.controller.read_queue)
    pseudochannels = device.channels * memory.organisation.pseudochannels
    if memory.controller.queue_scope == "bank":
        waiting *= memory.organisation.banks // memory.organisation.pseudochannels
    if a is not None:
        waiting = min(waiting, a.dma.engines * a.dma.window / burst / pseudochannels)
    tick_ns = memory.tick_clock.ns_of_ticks(1)
    limits = _pseudochannel(memory, rows.bursts, waiting)
    paced = [rate for name, rate in limits.items() if name not in ("banks", "queue")]
    served = _together([_together(paced, p.paced), limits["banks"]], p.banks)
    each = _together([served, limits["queue"]], p.queue)  # bursts a tick
    if memory.controller.refresh == "all_bank":
        each *= 1 - float(refresh_share(memory, data_bound=True))
    to_gbps = burst / tick_ns * pseudochannels * extent / moved
    gbps = {name: rate * to_gbps for name, rate in limits.items()}
    total = each * to_gbps
    if a is not None:
        opening = row_delay(memory, "PRE", memory.activate_command, SAME_BANK)
        opening += row_delay(memory, "ACT", "RD", SAME_BANK)
        served_ns = (opening + piece / burst / rows.pseudochannels / each) * tick_ns
        latency_ns = a.dma.request_latency + a.dma.response_latency + served_ns
        gbps["windows"] = a.dma.engines * a.dma.window / latency_ns * extent / moved
        port_ns = extent / (a.dma.port_bandwidth / 1e9)
        gbps["descriptors and ports"] = a.dma.engines * extent / (a.dma.extent_cost + port_ns)
        total = _together([total, gbps["windows"], gbps["descriptors and ports"]], p.paced)
    return Estimate(total, total / device.peak_gbps, gbps)


def _together(rates: list[float], p: float) -> float:
    return float(sum(rate**-p for rate in rates) ** (-1 / p))


def _rows(memory: MemorySpec, bursts: int) -> _Rows:
    """`bursts` consecutive ones, aligned to their size, by the address map."""
    left, places = (bursts - 1).bit_length(), dict.fromkeys(("column", "pseudochannel"), 0)
    for name, bits in memory.resolved_address_map():
        places[name] = places.get(name, 0) + min(bits, left)
        left -= min(bits, left)
    column, pseudochannel = places.pop("column"), places.pop("pseudochannel")
    banks = 1 << (sum(places.values()) - places.get("row", 0))
    share = bursts / (1 << (column + pseudochannel)) / banks / (1 << places.get("row", 0))
    return _Rows((1 << column) * share, banks, 1 << pseudochannel)


def _kept_open(device: Device, moved: int, piece: int, rows: _Rows) -> float:
    """Factor on the bursts of an activation: later pieces of an extent in a channel may find their
    rows open."""
    memory, a = device.memory, device.accelerator
    assert a is not None
    below = 0
    for name, bits in memory.resolved_address_map():
        if name == "row":
            break
        below += bits
    span = memory.organisation.burst_bytes << below
    visits = max(1.0, min(moved / a.channels, span) / piece)
    banks = memory.organisation.banks / memory.organisation.pseudochannels
    open_still = max(0.0, 1 - rows.banks / banks) ** (a.dma.engines - 1)
    return 1 / (1 - open_still * (visits - 1) / visits)


def _pseudochannel(memory: MemorySpec, bursts: float, waiting: float) -> dict[str, float]:
    """Bursts a tick that each resource of a pseudo-channel allows, `bursts` an activation, with
    `waiting` entries in its queue."""
    o = memory.organisation
    banks = o.banks // o.pseudochannels
    rates = {"data bus": 1 / beats(memory.data.read, memory)}
    one, two = command_slots(memory, 1), command_slots(memory, 2)
    for bus, slots in one.items():
        read = two[bus] - slots
        if slots == read:  # column commands alone: in step with the data
            rates["data bus"] = min(rates["data bus"], 1 / read)
        else:
            rates[f"{bus} bus"] = bursts / (slots + (bursts - 1) * read)
    rates["activations"] = bursts / float(max(activation_ticks(memory).values()))
    rates["banks"] = banks * bursts / bank_cycle(memory, bursts)
    if memory.controller.refresh == "per_bank":
        assert memory.refresh.per_bank is not None
        out = row_delay(memory, "REFPB", memory.activate_command, SAME_BANK)
        rates["banks"] *= 1 - out / memory.ticks(memory.refresh.per_bank.interval)
    rates["queue"] = waiting / bank_cycle(memory, 1)
    return rates

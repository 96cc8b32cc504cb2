"""A memory and a stream of accesses without one cause of lost bandwidth.

A cause is taken away by a derived description, which is checked like any other, or by other places
of the accesses; the kernel is the same. What remains of a description is as it was: bursts still
never overlap on DQ, commands still take their slots on the bus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from hwmodel.kernel.address import by_channel, decode, encode, to_channel
from hwmodel.kernel.kernel_names import PARTIAL_WRITE, READ
from hwmodel.kernel.limits import Int
from hwmodel.measure.trace import TraceChunk
from hwmodel.specs.commands import COLUMN_COMMANDS, MASKED_WRITES, MAX_REQUESTS, READ_COMMANDS
from hwmodel.specs.controller import MAX_QUEUE, AddressField
from hwmodel.specs.device import Device
from hwmodel.specs.memory_fields import DelayRow
from hwmodel.specs.memory_spec import MemorySpec

_ACTIVATIONS = ("ACT", "ACT1", "ACT2")
_MASKED = set(MASKED_WRITES.values())
_STRETCHES, _SEED = 64, 1
"""Accesses that move to another channel stay together up to a row, or so small a part of a
channel's share (assumed)."""


class AccessStream(NamedTuple):
    """Accesses in the order of the trace by their places, int64 (n,)."""

    channel: Int
    bank: Int
    """Flat within its channel, pseudo-channel outermost."""
    row: Int
    column: Int
    kind: Int
    """READ, WRITE or PARTIAL_WRITE."""
    arrival: Int | None = None
    """Ticks since the first access; None: each as soon as there is room."""


class WithoutCase(NamedTuple):
    """What is simulated: `channels` channels of a memory, and their accesses."""

    memory: MemorySpec
    channels: int
    stream: AccessStream

    def parts(self, first: int, last: int) -> Iterator[tuple[int, Int, Int, Int | None]]:
        """(channel, local byte addresses, kinds, arrival ticks) of accesses `first` to `last` - 1,
        for each channel that has any."""
        whole = self.stream
        part = AccessStream(*(None if v is None else v[first:last] for v in whole))  # type: ignore[arg-type]
        local = encode(self.memory, part.bank, part.row, part.column)
        for channel, own in enumerate(by_channel(part.channel, self.channels)):
            if len(own):
                when = None if part.arrival is None else part.arrival[own]
                yield channel, local[own], part.kind[own], when


Removal = Callable[[WithoutCase], WithoutCase]
"""Gives its argument itself where there is nothing to take away."""


class BandwidthCause(NamedTuple):
    """Why bandwidth is lost."""

    name: str
    words: str
    """How it is taken away."""
    remove: Removal


def placed(device: Device, chunk: TraceChunk, single_channel: bool) -> WithoutCase:
    """The accesses of a chunk at their places on a device, or on one channel of it."""
    address, kind, arrival = chunk
    alone = single_channel or device.channels == 1
    channel, local = (np.zeros_like(address), address) if alone else to_channel(device, address)
    stream = AccessStream(channel, *decode(device.memory, local), kind, arrival)
    return WithoutCase(device.memory, 1 if alone else device.channels, stream)


def derived(memory: MemorySpec, **changes: Any) -> MemorySpec:
    """`memory` with other values of some fields, checked. Raises ValueError."""
    fields = {name: getattr(memory, name) for name in MemorySpec.model_fields}
    return MemorySpec(**(fields | changes))


def _changed(case: WithoutCase, **changes: Any) -> WithoutCase:
    return case._replace(memory=derived(case.memory, **changes))


def _controller(case: WithoutCase, **changes: Any) -> WithoutCase:
    """With other fields of its controller."""
    old = case.memory.controller
    new = old.model_copy(update=changes)
    return case if new == old else _changed(case, controller=new)


def _rows(gone: Callable[[str, str, str], bool], needs: Callable[[WithoutCase], bool]) -> Removal:
    """Without the rows, or the pairs of a row, for which gone(scope, after, before), of a case that
    `needs` them. A window counts all its commands together and goes as a whole."""

    def remove(case: WithoutCase) -> WithoutCase:
        if not needs(case):
            return case
        kept: list[DelayRow] = []
        for row in case.memory.constraints:
            pairs = [(a, b) for a in row.after for b in row.before]
            left = [(a, b) for a, b in pairs if not gone(row.scope, a, b)]
            if len(left) == len(pairs):
                kept.append(row)
            elif row.window is None:
                for after in dict.fromkeys(a for a, _ in left):
                    before = [b for a, b in left if a == after]
                    kept.append(row.model_copy(update={"after": [after], "before": before}))
        return case if kept == case.memory.constraints else _changed(case, constraints=kept)

    return remove


def _always(case: WithoutCase) -> bool:
    return True


def _both_columns(after: str, before: str) -> bool:
    return after in COLUMN_COMMANDS and before in COLUMN_COMMANDS


def _turn(after: str, before: str) -> bool:
    """Whether the second command moves data the other way."""
    return _both_columns(after, before) and (after in READ_COMMANDS) != (before in READ_COMMANDS)


def _no_arrivals(case: WithoutCase) -> WithoutCase:
    if case.stream.arrival is None:
        return case
    return case._replace(stream=case.stream._replace(arrival=None))


def _mixed(case: WithoutCase) -> bool:
    """Whether it reads and writes."""
    reads = case.stream.kind == READ
    return bool(reads.any() and not reads.all())


def _masks(case: WithoutCase) -> bool:
    return case.memory.masked_writes and bool((case.stream.kind == PARTIAL_WRITE).any())


def _several(case: WithoutCase) -> bool:
    """Whether it has ranks or stacks to switch between."""
    return case.memory.organisation.ranks > 1 or case.memory.organisation.stacks > 1


def _no_data_clock(case: WithoutCase) -> WithoutCase:
    sync = case.memory.sync
    if sync is None or sync.always_on:
        return case
    return _changed(case, sync=sync.model_copy(update={"always_on": True}))


def _deep_queues(case: WithoutCase) -> WithoutCase:
    """The deepest queues that a channel may have."""
    c, o = case.memory.controller, case.memory.organisation
    queues = o.banks // o.pseudochannels if c.queue_scope == "bank" else 1
    kinds = 2 if c.queues == "separate" else 1
    most = min(MAX_QUEUE, (MAX_REQUESTS - MAX_QUEUE) // (queues * kinds))
    return _controller(
        case, read_queue=max(c.read_queue, most), write_queue=max(c.write_queue, most)
    )


def _one_row_a_bank(case: WithoutCase) -> WithoutCase:
    """Every bank is one row that is as large as the bank, and stays open but for refreshes."""
    m, stream = case.memory, case.stream
    o = m.organisation
    if o.rows > 1:
        bits = [
            AddressField(field="column" if name == "row" else name, bits=count)  # type: ignore[arg-type]
            for name, count in m.resolved_address_map()
        ]
        rows = 1 << (o.rows - 1).bit_length()
        wide = o.model_copy(update={"rows": 1, "row_bytes": o.row_bytes * rows})
        case = _changed(case, organisation=wide, address_map=bits, bank_hash=[])
        column = stream.row * o.columns + stream.column
        stream = stream._replace(row=np.zeros_like(stream.row), column=column)
    return _controller(case._replace(stream=stream), page_policy="open")


def _spread_over_channels(case: WithoutCase) -> WithoutCase:
    """No channel has more accesses than its share, but for a stretch of them: what is above goes,
    in stretches spread over the trace, to channels that have less. What moves keeps its bank, and
    meets only rows that it met before."""
    stream, count = case.stream, case.channels
    load = np.bincount(stream.channel, minlength=count)
    share = -(-len(stream.channel) // count)
    room = np.maximum(share - load, 0)
    if load.max() <= share or not room.any():
        return case
    # each taker's turns are even but for chance, so that no pattern of the trace picks them
    rng = np.random.default_rng(_SEED)
    turns = np.concatenate([(np.arange(n) + rng.random(n)) / n for n in room if n])
    takers = np.repeat(np.arange(count), room)[np.argsort(turns)]
    channel, given = stream.channel.copy(), 0
    size = max(1, min(case.memory.organisation.columns, share // _STRETCHES))
    for over in np.flatnonzero(load > share):
        own = np.flatnonzero(stream.channel == over)
        part = np.arange(len(own)) // size
        excess = (load[over] - share) / load[over]
        gone = np.floor((part + 1) * excess) > np.floor(part * excess)
        number = np.unique(part[gone], return_inverse=True)[1].ravel()
        channel[own[gone]] = takers[(given + number) % len(takers)]
        given += int(number[-1]) + 1 if len(number) else 0
    return case._replace(stream=_apart(case.memory, stream, channel))


def _apart(memory: MemorySpec, stream: AccessStream, channel: Int) -> AccessStream:
    """Accesses in other channels: rows of a bank stay different rows where they meet."""
    o, sources = memory.organisation, int(stream.channel.max()) + 1
    bank = channel * o.bank_numbers + stream.bank
    keys = (bank * sources + stream.channel) * o.rows + stream.row
    rows, which = np.unique(keys, return_inverse=True)
    first = np.diff(rows // (sources * o.rows), prepend=-1) != 0
    index = np.arange(len(rows))
    number = (index - np.maximum.accumulate(np.where(first, index, 0))) % o.rows
    return stream._replace(channel=channel, row=number[which.ravel()])


def _spread_over_banks(case: WithoutCase) -> WithoutCase:
    """Each channel's rows, in the order of their first use, go round its pseudo-channels, bank
    groups, banks, stacks and ranks."""
    o, stream = case.memory.organisation, case.stream
    key = (stream.channel * o.bank_numbers + stream.bank) * o.rows + stream.row
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    turn = np.empty_like(order)
    lane = stream.channel[first]
    for channel in range(case.channels):
        own = order[lane[order] == channel]
        turn[own] = np.arange(len(own))
    rest, bank = turn, np.zeros_like(turn)
    sizes = {
        "pseudochannel": (o.pseudochannels, o.bank_numbers // o.pseudochannels),
        "bankgroup": (o.bankgroups, o.banks_per_group),
        "bank": (o.banks_per_group, 1),
        "stack": (o.stacks, o.bankgroups * o.banks_per_group),
        "rank": (o.ranks, o.stack_numbers * o.bankgroups * o.banks_per_group),
    }
    for size, weight in sizes.values():
        rest, place = np.divmod(rest, size)
        bank += place * weight
    which = which.ravel()
    return case._replace(stream=stream._replace(bank=bank[which], row=rest[which]))


CAUSES = (
    BandwidthCause("arrivals", "every access has arrived at the start", _no_arrivals),
    BandwidthCause(
        "channel imbalance", "no channel has more than its share", _spread_over_channels
    ),
    BandwidthCause(
        "refresh", "controller.refresh: none",
        lambda case: _controller(case, refresh="none"),
    ),
    BandwidthCause(
        "read/write turnaround", "no row between reads and writes",
        _rows(lambda scope, a, b: _turn(a, b), _mixed),
    ),
    BandwidthCause(
        "masked writes", "partial writes take no longer than whole ones",
        _rows(lambda scope, a, b: _both_columns(a, b) and b in _MASKED, _masks),
    ),
    BandwidthCause(  # two reads, or two writes, still keep what any two banks of a rank must
        "bank groups", "tCCD_L = tCCD_S",
        _rows(
            lambda scope, a, b: scope == "bankgroup" and _both_columns(a, b)
            and not _turn(a, b) and b not in _MASKED,
            _always,
        ),
    ),
    BandwidthCause(
        "rank and stack switches", "no row between ranks or stacks",
        _rows(
            lambda scope, a, b: scope in ("other_rank", "other_stack") and _both_columns(a, b),
            _several,
        ),
    ),
    BandwidthCause("data clock (CAS)", "sync.always_on: true", _no_data_clock),
    BandwidthCause(
        "activation windows", "no tRRD, no tFAW",
        _rows(
            lambda scope, a, b: scope != "bank" and a in _ACTIVATIONS and b in _ACTIVATIONS,
            _always,
        ),
    ),
    BandwidthCause("too few in flight", "the deepest queues", _deep_queues),
    BandwidthCause("row misses", "every bank is one open row", _one_row_a_bank),
    BandwidthCause("address map", "rows go round the banks by first use", _spread_over_banks),
)  # fmt: skip
"""In the order in which they are taken away: first what loads the memory, then what a standard
asks of every stream, then what depends on banks and rows."""


def without(case: WithoutCase, causes: frozenset[str]) -> WithoutCase:
    """`case` without these causes, by name. Rows are spread before they are joined to one."""
    for cause in sorted(CAUSES, key=lambda each: each.name == "row misses"):
        if cause.name in causes:
            case = cause.remove(case)
    return case

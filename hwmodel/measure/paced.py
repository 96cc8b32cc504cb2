"""Accesses that come from outside at a rate of their own, beside those of a device's cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernel.limits import Int
from hwmodel.kernel.memory import Descriptors, prepare
from hwmodel.kernel.sources.engines import FRACTION
from hwmodel.specs.device import Device

LOOK = 16
"""Rounds between two looks at how far the engines are."""


class Paced(NamedTuple):
    """Accesses in order, arrays (n,): device byte address, bytes, whether they write; and GB/s."""

    start: Int
    size: Int
    write: NDArray[np.bool_]
    gbps: float


WARM = 1 / 3
"""Share of a stream that is not timed: meanwhile the write queues fill (assumed)."""


def write_queue_bytes(device: Device) -> int:
    """What all write queues of a device hold."""
    memory, a = device.memory, device.accelerator
    assert a is not None
    organisation, queue = memory.organisation, memory.controller.write_queue
    return a.channels * organisation.pseudochannels * queue * organisation.burst_bytes


def issuing_ns(device: Device, own: Descriptors, beside: Sequence[Paced] = ()) -> float:
    """Time in which the cores' engines issue the last two thirds of the bytes of `own`.

    Each stream of `beside` begins with them and has engines of its own, as many as the cores, so
    that no window holds it up and the queues of the cores are as without it (assumed). Its accesses
    go to these in turn, each when the rate has it due, at no cost of a descriptor.
    """
    a, lanes = device.accelerator, 1 + len(beside)
    assert a is not None
    engines, tick_ns = a.dma.engines, device.memory.tick_clock.ns_of_ticks(1)
    dma = a.dma.model_copy(update={"engines": engines * lanes})
    wide = replace(device, accelerator=a.model_copy(update={"dma": dma}))
    parts = [own._replace(engine=own.engine * lanes)]
    for lane, each in enumerate(beside, 1):  # engine e of the cores and theirs stay on one die
        turn = np.arange(len(each.start)) % engines
        parts.append(Descriptors(turn * lanes + lane, *each[:3]))
    joined = Descriptors(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    run = prepare(wide, joined, 0)
    p, mine = run.host[0], run.engines[::lanes]
    for lane, each in enumerate(beside, 1):
        due = FRACTION / (each.gbps * float(tick_ns))  # 1/FRACTION ticks a byte
        for at, engine in enumerate(run.engines[lane::lanes]):
            span = slice(int(engine["cursor"]), int(engine["end"]))
            size = run.size[span]
            run.wait[span] = np.maximum(size * (due * engines - int(p["byte_time"])), 0)
            run.wait[span][:1] = size[:1] * due * at
    passed = np.concatenate(([0], np.cumsum(run.size)))
    before = passed[mine["cursor"]].sum()
    total = passed[mine["end"]].sum() - before
    begin, done = 0.0, 0
    while done < total:
        earlier, tick = done, int(p["now"])
        run.advance(tick + LOOK * int(p["round"]))
        done = int((passed[mine["cursor"]] + mine["offset"]).sum() - before)
        if earlier <= WARM * total < done:  # between two looks progress is even
            begin = tick + (int(p["now"]) - tick) * (WARM * total - earlier) / (done - earlier)
    return (float(mine["ready"].max()) / FRACTION - begin) * float(tick_ns)

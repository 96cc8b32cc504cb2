"""The loop that drives channels, whatever their requests come from.

A source says up to which tick its channels may run before it has to look again (its horizon), gives
the requests that arrive before then, and learns what became of them. Traces, DMA engines and the
calls of a host are sources (`hwmodel.kernel.sources`). Channels do not feel each other until the
horizon, and run one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hwmodel.kernel.channel_state import CHANNEL
from hwmodel.kernel.host import DONE, MORE, array_at, call_at
from hwmodel.kernel.jit import called, inlined
from hwmodel.kernel.kernel_names import LOG_FULL, WANTS_INPUT, Record
from hwmodel.kernel.mechanism import Hook

_STATE_BYTES = CHANNEL.itemsize


class AccessSource(NamedTuple):
    """A source of requests: parts of a kernel (`hwmodel.kernel.jit`) that its driver calls. `host`
    is a record of the source's type (`hwmodel.kernel.host`), `state` a CHANNEL record; both are
    modified in place."""

    horizon: Hook
    """(host, to) -> tick up to which channels may run next, or -1 where the call is over."""
    give: Hook
    """(host, until) -> MORE where not all that arrives before `until` was given to the channels,
    DONE where it was, or why the driver returns first."""
    fill: Hook
    """(host, state, number, last) -> MORE where more waits for a channel than its inbox holds now,
    DONE where not, or why the driver returns first. `last`: nothing else arrives before the
    horizon."""
    took: Hook
    """(host, state, number, outcome) -> DONE, or why the driver returns first, when a channel has
    run; `outcome` of `hwmodel.kernel.channel.advance`."""
    passed: Hook
    """(host, until) -> MORE or, where the call is over, DONE; when all channels have run up to the
    horizon."""


def driver(source: AccessSource) -> Callable[..., int]:
    """The loop of a source as a part of kernels, (host, to) -> DONE, or why it returned first."""
    horizon, give, fill, took, passed = source

    @called
    def run_channel(host: Record, number: int, until: int, last: bool) -> int:
        """Run a channel up to tick `until`, or as far as its input is known."""
        place = host.states + number * _STATE_BYTES
        state = array_at(place, (1,), CHANNEL)[0]
        while state.now < until:
            waits = fill(host, state, number, last)
            if waits != DONE and waits != MORE:
                return waits
            log = host.log, host.log_rows, host.log_fields
            completions = host.completions, host.completion_rows, host.completion_ticks
            given = host.constants, place, until, *log, *completions
            outcome = call_at(host.advance, given)
            why = took(host, state, number, outcome)
            if why != DONE:
                return why
            if outcome != LOG_FULL and not (outcome == WANTS_INPUT and waits == MORE):
                break
        return DONE

    @inlined
    def drive(host: Record, to: int) -> int:
        while True:
            until = horizon(host, to)
            if until < 0:
                return DONE
            given = MORE
            while given == MORE:
                given = give(host, until)
                if given != DONE and given != MORE:
                    return given
                for number in range(host.channels):
                    why = run_channel(host, number, until + host.lead, given == DONE)
                    if why != DONE:
                        return why
            if passed(host, until) == DONE:
                return DONE

    return drive
